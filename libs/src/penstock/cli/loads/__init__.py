"""Commands that write and read records of their own: `demo`, to have something to look at, and `bench`, to measure."""
