package example;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32;

/**
 * The block: docs/formats/block.md. All of it is checked on the way in: nobody else does after the disk. Of a wide
 * block (version 2) without a codec the values are read; its other columns lie behind them.
 */
final class Block {
    private static final int HEADER = 32;
    private static final int MAGIC = 0x314B4C42;
    private static final int VERSION = 1;
    private static final int WIDE = 2;
    private static final int SECOND_HEADER = 16;

    private Block() {}

    static final class Corrupt extends RuntimeException {
        Corrupt(String why) {
            super(why);
        }
    }

    static byte[] encode(List<byte[]> records, long timestampUs) {
        int values = records.stream().mapToInt(record -> record.length).sum();
        int offsets = pad8(4 * (records.size() + 1));
        int body = offsets + pad8(values);
        ByteBuffer block = ByteBuffer.allocate(HEADER + body).order(ByteOrder.LITTLE_ENDIAN);
        block.putInt(0, MAGIC).put(4, (byte) VERSION);
        block.putInt(8, records.size()).putInt(12, body).putLong(24, timestampUs);
        int end = 0;
        for (int number = 0; number < records.size(); number++) {
            block.put(HEADER + offsets + end, records.get(number));
            end += records.get(number).length;
            block.putInt(HEADER + 4 * (number + 1), end);
        }
        block.putInt(16, checksum(block.array()));
        return block.array();
    }

    static List<byte[]> decode(byte[] data) {
        ByteBuffer block = ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN);
        check(data.length >= HEADER, "it is shorter than a header");
        check(block.getInt(0) == MAGIC, "it is none");
        check(block.getInt(12) == data.length - HEADER, "its length is not what the header says");
        check(block.getInt(16) == checksum(data), "its checksum is wrong");
        long count = Integer.toUnsignedLong(block.getInt(8));
        long first = 0;
        long inBody = count;
        int columns = HEADER;
        int version = data[4];
        if (version == WIDE && data[5] == 0) {
            check(data.length >= HEADER + SECOND_HEADER, "it is shorter than its headers");
            first = Integer.toUnsignedLong(block.getInt(20));
            inBody = Integer.toUnsignedLong(block.getInt(HEADER));
            columns += SECOND_HEADER;
        } else if (version != VERSION || data[5] != 0) {
            throw new Corrupt(
                    "a block has version " + version + " and codec " + data[5] + ", which this client does not read");
        }
        long valuesAt = columns + (4 * (inBody + 1) + 7) / 8 * 8;
        check(count >= 1 && first + count <= inBody && valuesAt <= data.length, "it is too short for its records");
        check(block.getInt(columns) == 0, "its first record does not begin at 0");
        List<byte[]> records = new ArrayList<>();
        int offsets = columns + 4 * (int) first;
        int from = block.getInt(offsets);
        for (int number = 1; number <= count; number++) {
            int to = block.getInt(offsets + 4 * number);
            check(from >= 0 && to >= from && valuesAt + to <= data.length, "its offsets do not ascend");
            byte[] record = new byte[to - from];
            block.get((int) valuesAt + from, record);
            records.add(record);
            from = to;
        }
        return records;
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new Corrupt("a block is corrupt: " + otherwise);
        }
    }

    private static int pad8(int bytes) {
        return (bytes + 7) & ~7;
    }

    private static int checksum(byte[] data) {
        CRC32 crc = new CRC32();
        crc.update(data, 0, 16);
        crc.update(data, 20, data.length - 20);
        return (int) crc.getValue();
    }
}
