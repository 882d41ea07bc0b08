package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.Test;

class BlockTest {
    private static final long STAMP = 1_700_000_000_123_456L;
    private static final List<byte[]> RECORDS = List.of(bytes("put a=1"), bytes(""), bytes("del b"));

    @Test
    void theWorkedExampleOfThePage() {
        byte[] made = Block.encode(RECORDS, STAMP);
        assertEquals(
                "424c4b31010000000300000020000000" + "bb5498160000000040222018240a0600"
                        + "0000000007000000070000000c000000" + "70757420613d3164656c206200000000",
                HexFormat.of().formatHex(made));
        List<byte[]> found = Block.decode(made);
        assertEquals(RECORDS.size(), found.size());
        for (int number = 0; number < found.size(); number++) {
            assertEquals(text(RECORDS.get(number)), text(found.get(number)));
        }
    }

    @Test
    void aBlockWithAnyByteChangedOrMissingIsRefused() {
        byte[] made = Block.encode(RECORDS, STAMP);
        for (int at = 0; at < made.length; at++) {
            byte[] changed = made.clone();
            changed[at] ^= 0x10;
            assertThrows(Block.Corrupt.class, () -> Block.decode(changed), "byte " + at);
            byte[] shorter = Arrays.copyOf(made, at);
            assertThrows(Block.Corrupt.class, () -> Block.decode(shorter), at + " bytes");
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
