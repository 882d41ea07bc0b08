package bench;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.server.EmbeddedServer;
import org.apache.bookkeeper.server.conf.BookieConfiguration;
import org.apache.bookkeeper.util.LocalBookKeeper;

/**
 * Three bookies, the ZooKeeper that they need and the callers that load them, in one process.
 *
 * <p>Arguments: a folder, ZooKeeper's port, the bookies' ports. A line of JSON on standard input is
 * one window to measure, a line on standard output its result (bench/peers/program.py has the
 * form). Every shard is a ledger with an ensemble and a write quorum of three and an ack quorum of
 * two, made for the window and deleted after it. Bookies sync their journals before they answer,
 * as they do when nothing is said. Callers share one client and go to the bookies over loopback.
 */
public final class Ensemble {
    private static final int ENSEMBLE = 3;
    private static final int ACKS = 2;
    private static final int ZOOKEEPER_CONNECTIONS = 100;
    private static final long TIMEOUT_S = 60;
    private static final byte[] PASSWORD = {};

    private Ensemble() {}

    /** One ledger, and how many of its entries were acked. */
    private record Shard(WriteHandle ledger, AtomicLong acked) {}

    /** Callers of one window; all of them end when it does, or when one fails. */
    private static final class Load {
        final long began;
        final long ends;
        final byte[] record;
        final CountDownLatch running;
        final LongAdder records = new LongAdder();
        final Map<Long, LongAdder> latenciesUs = new ConcurrentHashMap<>();
        final AtomicReference<Throwable> failure = new AtomicReference<>();

        Load(int callers, int size, long began, long ends) {
            this.running = new CountDownLatch(callers);
            this.record = new byte[size];
            this.began = began;
            this.ends = ends;
        }

        void send(Shard shard) {
            long started = System.nanoTime();
            if (started - ends >= 0 || failure.get() != null) {
                running.countDown();
                return;
            }
            shard.ledger.appendAsync(record).whenComplete((entry, error) -> {
                if (error != null) {
                    failure.set(error);
                } else {
                    shard.acked.incrementAndGet();
                    long now = System.nanoTime();
                    if (now - began >= 0 && now - ends < 0) {
                        records.increment();
                        long latency = (now - started) / 1000;
                        latenciesUs.computeIfAbsent(latency, key -> new LongAdder()).increment();
                    }
                }
                send(shard);
            });
        }
    }

    private static ServerConfiguration bookie(Path folder, String metadata, int port) throws Exception {
        Path journal = Files.createDirectories(folder.resolve("journal-" + port));
        Path ledgers = Files.createDirectories(folder.resolve("ledgers-" + port));
        ServerConfiguration settings = new ServerConfiguration();
        settings.setMetadataServiceUri(metadata);
        settings.setBookiePort(port);
        settings.setAllowLoopback(true);
        settings.setAdvertisedAddress("127.0.0.1");
        settings.setJournalDirName(journal.toString());
        settings.setLedgerDirNames(new String[] {ledgers.toString()});
        settings.setJournalSyncData(true);
        settings.setDiskUsageThreshold(0.99f);
        settings.setDiskUsageWarnThreshold(0.99f);
        return settings;
    }

    private static Map<String, Object> measure(BookKeeper client, JsonNode wanted) throws Exception {
        List<Shard> shards = new ArrayList<>();
        for (int number = 0; number < wanted.get("shards").asInt(); number++) {
            WriteHandle ledger = client.newCreateLedgerOp()
                    .withEnsembleSize(ENSEMBLE)
                    .withWriteQuorumSize(ENSEMBLE)
                    .withAckQuorumSize(ACKS)
                    .withDigestType(DigestType.CRC32C)
                    .withPassword(PASSWORD)
                    .execute()
                    .get(TIMEOUT_S, TimeUnit.SECONDS);
            shards.add(new Shard(ledger, new AtomicLong()));
        }
        int callers = wanted.get("callers").asInt();
        double warmup = wanted.get("warmup_s").asDouble();
        double seconds = wanted.get("seconds").asDouble();
        long began = System.nanoTime() + (long) (warmup * 1e9);
        Load load = new Load(callers, wanted.get("size").asInt(), began, began + (long) (seconds * 1e9));
        for (int caller = 0; caller < callers; caller++) {
            load.send(shards.get(caller % shards.size()));
        }
        if (!load.running.await((long) (warmup + seconds) + TIMEOUT_S, TimeUnit.SECONDS)) {
            return Map.of("error", "callers still wait for their acks");
        }
        if (load.failure.get() != null) {
            return Map.of("error", String.valueOf(load.failure.get()));
        }
        for (Shard shard : shards) {
            String missing = missing(client, shard);
            if (!missing.isEmpty()) {
                return Map.of("lost", missing);
            }
        }
        return Map.of("records", load.records.sum(), "seconds", seconds, "latencies_us", load.latenciesUs);
    }

    /** What a reader, who recovers the ledger first, does not find; empty when nothing is missing. */
    private static String missing(BookKeeper client, Shard shard) throws Exception {
        long ledger = shard.ledger.getId();
        shard.ledger.close();
        try (ReadHandle reader = client.newOpenLedgerOp()
                .withLedgerId(ledger)
                .withDigestType(DigestType.CRC32C)
                .withPassword(PASSWORD)
                .withRecovery(true)
                .execute()
                .get(TIMEOUT_S, TimeUnit.SECONDS)) {
            long has = reader.getLastAddConfirmed() + 1;
            if (has != shard.acked.get()) {
                return shard.acked.get() + " entries were acked, ledger " + ledger + " has " + has;
            }
        }
        client.newDeleteLedgerOp().withLedgerId(ledger).execute().get(TIMEOUT_S, TimeUnit.SECONDS);
        return "";
    }

    public static void main(String[] arguments) {
        int code = 0;
        try {
            serve(arguments);
        } catch (Exception | LinkageError error) {
            error.printStackTrace();
            code = 1;
        }
        System.exit(code); // bookies and ZooKeeper have threads that go on
    }

    private static void serve(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever else is printed is no answer
        Path folder = Path.of(arguments[0]);
        int port = Integer.parseInt(arguments[1]);
        LocalBookKeeper.runZookeeper(
                ZOOKEEPER_CONNECTIONS, port, Files.createDirectories(folder.resolve("zookeeper")).toFile());
        String metadata = "zk+hierarchical://127.0.0.1:" + port + "/ledgers";
        ServerConfiguration any = new ServerConfiguration();
        any.setMetadataServiceUri(metadata);
        BookKeeperAdmin.initNewCluster(any);
        for (int number = 2; number < arguments.length; number++) {
            ServerConfiguration settings = bookie(folder, metadata, Integer.parseInt(arguments[number]));
            EmbeddedServer.builder(new BookieConfiguration(settings)).build()
                    .getLifecycleComponentStack().start();
        }
        ClientConfiguration settings = new ClientConfiguration();
        settings.setMetadataServiceUri(metadata);
        ObjectMapper json = new ObjectMapper();
        try (BookKeeper client = BookKeeper.newBuilder(settings).build();
                BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            answers.println("{\"ready\": true}");
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                Map<String, Object> answer;
                try {
                    answer = measure(client, json.readTree(line));
                } catch (Exception error) {
                    answer = Map.of("error", error.toString());
                }
                answers.println(json.writeValueAsString(answer));
            }
        }
    }
}
