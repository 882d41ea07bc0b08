package example;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A database that is one number, and whose write-ahead log is the service. It takes over from whoever wrote before,
 * recovers, appends, and truncates what its checkpoint has.
 *
 * <pre>
 * java -jar target/wal-1.jar -endpoints 127.0.0.1:7401,127.0.0.1:7402 -holder db-1 -records 1000
 * </pre>
 *
 * Record n of the log is "n HOLDER", whoever wrote it. So a record that is lost, doubled, out of order, or of a writer
 * that was fenced shows when the log is read.
 */
final class Main {
    private static final int BLOCK_RECORDS = 10;
    private static final int FENCED = 3;

    private static final String HELP = """
            usage: java -jar target/wal-1.jar [-OPTION VALUE]...
              -endpoints   client addresses of stores, host:port,... (127.0.0.1:7401)
              -shard       the log (1)
              -holder      this writer's name (db-1)
              -records     how many to append; -1: until another writer takes over (1000)
              -checkpoint  the database's own files have everything up to this LSN (0)
              -lose-every  throw away every so manieth answer (0)
              -timeout     seconds, of a call (60)
            """;

    private long number;
    private final Map<String, String> options = new HashMap<>(Map.of(
            "-endpoints", "127.0.0.1:7401",
            "-shard", "1",
            "-holder", "db-1",
            "-records", "1000", // -1: until another writer takes over
            "-checkpoint", "0", // the database's own files have everything up to this LSN
            "-lose-every", "0", // throw away every so manieth answer
            "-timeout", "60")); // seconds, of a call

    public static void main(String[] words) throws InterruptedException {
        if (Arrays.asList(words).contains("-h") || Arrays.asList(words).contains("-help")) {
            System.out.print(HELP);
            return;
        }
        Main main = new Main();
        if (words.length % 2 != 0) {
            System.err.println("an option without a value: " + words[words.length - 1] + "; -h says which there are");
            System.exit(2);
        }
        for (int at = 0; at + 1 < words.length; at += 2) {
            if (main.options.replace(words[at], words[at + 1]) == null) {
                System.err.println("no such option: " + words[at] + "; -h says which there are");
                System.exit(2);
            }
        }
        Duration patience = Duration.ofSeconds(main.option("-timeout"));
        int code = 0;
        List<String> endpoints = Arrays.asList(main.options.get("-endpoints").split(","));
        long shard = main.option("-shard");
        try (Stores stores = new Stores(endpoints, patience, shard)) {
            main.run(new Wal(stores, shard));
        } catch (Failure failure) {
            if (failure.reason.equals("FENCED")) {
                say("fenced: epoch %s was granted to %s", failure.details.get("epoch"), failure.details.get("holder"));
                code = FENCED;
            } else {
                System.err.println(failure.getMessage() + " (" + failure.outcome + ")");
                code = 1;
            }
        }
        System.exit(code);
    }

    private void run(Wal wal) throws Failure, InterruptedException {
        String holder = options.get("-holder");
        long checkpoint = option("-checkpoint");
        wal.takeOver(holder);
        say("epoch %d: %s writes", wal.epoch, holder);
        long[] recovered = {0};
        long next = wal.read(checkpoint + 1, (lsn, record) -> {
            apply(lsn, new String(record, StandardCharsets.UTF_8));
            recovered[0]++;
        });
        say("recovered %d records up to LSN %d, the last is %d", recovered[0], next - 1, number);
        append(wal, holder, option("-records"));
        if (checkpoint > 0) {
            long truncated = wal.truncate(checkpoint);
            say("truncated up to LSN %d", truncated);
            try {
                wal.read(1, (lsn, record) -> {});
                throw new IllegalStateException("LSN 1 is still there");
            } catch (Failure failure) {
                if (!failure.reason.equals("TRUNCATED")) {
                    throw failure;
                }
                say("LSN 1 is gone: the log begins at LSN %s", failure.details.get("first_lsn"));
            }
        }
    }

    private void append(Wal wal, String holder, long count) throws Failure, InterruptedException {
        long durable = 0;
        long repeated = 0;
        long last = number;
        try (Appender appender = wal.appender()) {
            appender.loseEvery((int) option("-lose-every"));
            while (count < 0 || number < last + count || durable < count) {
                List<Appender.Ack> acks;
                if (count < 0 || number < last + count) {
                    List<byte[]> records = new ArrayList<>();
                    while (records.size() < BLOCK_RECORDS && (count < 0 || number < last + count)) {
                        records.add((++number + " " + holder).getBytes(StandardCharsets.UTF_8));
                    }
                    acks = appender.append(records, ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()));
                } else {
                    acks = appender.flush();
                }
                for (Appender.Ack ack : acks) {
                    durable += ack.records();
                    repeated += ack.duplicate() ? 1 : 0;
                    say("durable: %d at LSN %d", last + durable, ack.lsn() + ack.records() - 1);
                }
            }
        }
        say("appended %d records, %d blocks acknowledged by a repetition", durable, repeated);
    }

    /** Redo: the record behind n has to be n + 1. The first one that is left may be any. */
    private void apply(long lsn, String record) {
        long said = Long.parseLong(record.substring(0, record.indexOf(' ')));
        if (number != 0 && said != number + 1) {
            throw new IllegalStateException("LSN " + lsn + " has " + said + " behind " + number);
        }
        number = said;
    }

    private long option(String name) {
        return Long.parseLong(options.get(name));
    }

    private static void say(String line, Object... values) {
        System.out.println(String.format(line, values));
    }
}
