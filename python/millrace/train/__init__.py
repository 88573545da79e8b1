"""Training: optimisers, schedules, averages, coordination."""
