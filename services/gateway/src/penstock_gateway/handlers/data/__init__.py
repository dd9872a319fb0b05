"""Records and offsets: Produce, Fetch, ListOffsets, DeleteRecords and OffsetForLeaderEpoch."""
