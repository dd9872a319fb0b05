"""The software bill of materials: its licences, and known vulnerabilities. Start with `licences`."""
