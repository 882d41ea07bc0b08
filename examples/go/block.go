package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The block: docs/formats/block.md. All of it is checked on the way in: nobody else does after the disk.
// Of a wide block (version 2) without a codec the values are read; its other columns lie behind them.

const (
	header       = 32
	secondHeader = 16
	magic        = 0x314B4C42
	version      = 1
	wide         = 2
)

func encode(records [][]byte, timestampUs int64) []byte {
	values := 0
	for _, record := range records {
		values += len(record)
	}
	offsets := pad8(4 * (len(records) + 1))
	body := offsets + pad8(values)
	data := make([]byte, header+body)
	put := binary.LittleEndian
	put.PutUint32(data, magic)
	put.PutUint32(data[4:], version)
	put.PutUint32(data[8:], uint32(len(records)))
	put.PutUint32(data[12:], uint32(body))
	put.PutUint64(data[24:], uint64(timestampUs))
	end := 0
	for number, record := range records {
		copy(data[header+offsets+end:], record)
		end += len(record)
		put.PutUint32(data[header+4*(number+1):], uint32(end))
	}
	put.PutUint32(data[16:], checksum(data))
	return data
}

func decode(data []byte) ([][]byte, error) {
	get := binary.LittleEndian
	switch {
	case len(data) < header:
		return nil, corrupt("it is shorter than a header")
	case get.Uint32(data) != magic:
		return nil, corrupt("it is none")
	case uint64(get.Uint32(data[12:])) != uint64(len(data)-header):
		return nil, corrupt("its length is not what the header says")
	case get.Uint32(data[16:]) != checksum(data):
		return nil, corrupt("its checksum is wrong")
	}
	count := uint64(get.Uint32(data[8:]))
	first, inBody, columns := uint64(0), count, data[header:]
	switch {
	case data[4] == version && data[5] == 0:
	case data[4] == wide && data[5] == 0 && len(columns) >= secondHeader:
		first, inBody = uint64(get.Uint32(data[20:])), uint64(get.Uint32(columns))
		columns = columns[secondHeader:]
	default:
		return nil, fmt.Errorf("a block has version %d and codec %d, which this client does not read", data[4], data[5])
	}
	valuesAt := (4*(inBody+1) + 7) &^ 7
	if count < 1 || first+count > inBody || valuesAt > uint64(len(columns)) {
		return nil, corrupt("it is too short for its records")
	}
	offsets, values := columns[4*first:], columns[valuesAt:]
	if get.Uint32(columns) != 0 {
		return nil, corrupt("its first record does not begin at 0")
	}
	records := make([][]byte, count)
	for number := range records {
		from, to := get.Uint32(offsets[4*number:]), get.Uint32(offsets[4*number+4:])
		if to < from || uint64(to) > uint64(len(values)) {
			return nil, corrupt("its offsets do not ascend")
		}
		records[number] = values[from:to]
	}
	return records, nil
}

func corrupt(why string) error { return fmt.Errorf("a block is corrupt: %s", why) }

func pad8(bytes int) int { return (bytes + 7) &^ 7 }

func checksum(data []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(data[:16]), crc32.IEEETable, data[20:])
}
