"""What Penstock's services say to each other: identifiers, subjects, commands, queries, messages and their encoding."""
