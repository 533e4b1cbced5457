"""What runs a job on each of its sides, in a process each, and keeps what was measured. Knows no job."""
