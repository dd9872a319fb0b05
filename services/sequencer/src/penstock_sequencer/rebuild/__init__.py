"""`penstock rebuild`: a new journal from the bucket alone, for the day on which the journal is gone."""
