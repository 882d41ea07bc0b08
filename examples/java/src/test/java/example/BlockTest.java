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

    @Test
    void ofAWideBlockTheValuesAreRead() {
        String wide = "424c4b310200010003000000500000008e372bc80000000040222018240a0600"
                        + "030000004000000040000000000000000000000007000000070000000c000000"
                        + "70757420613d3164656c20620000000005000000000000000000000001000000"
                        + "01000000010000006100000000000000";
        assertEquals(List.of("put a=1", "", "del b"), texts(wide));
        String cut = "424c4b3102000100020000005000000022d2aead0100000040222018240a0600"
                        + "030000004000000040000000000000000000000007000000070000000c000000"
                        + "70757420613d3164656c20620000000005000000000000000000000001000000"
                        + "01000000010000006100000000000000";
        assertEquals(List.of("", "del b"), texts(cut));
        String compressed = "424c4b310201000003000000180000003136c473000000000000000000000000"
                        + "030000004000000008000000000000003132333435363738";
        Block.Corrupt told = assertThrows(Block.Corrupt.class, () -> texts(compressed));
        assertEquals("a block has version 2 and codec 1, which this client does not read", told.getMessage());
        String lying = "424c4b3102000000020000002800000003a52bd7000000000000000000000000"
                        + "020000001800000018000000000000000000000001000000ffffff7f00000000"
                        + "6162000000000000";
        assertThrows(Block.Corrupt.class, () -> texts(lying));
        // Cut, so that its first offset is not the body's; that it is negative asks for two gigabytes.
        String negative = "424c4b31020000000100000028000000a4f41173010000000000000000000000"
                        + "0200000018000000180000000000000000000000880200800300000000000000"
                        + "6162630000000000";
        assertThrows(Block.Corrupt.class, () -> texts(negative));
    }

    private static List<String> texts(String hex) {
        return Block.decode(HexFormat.of().parseHex(hex)).stream().map(BlockTest::text).toList();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
