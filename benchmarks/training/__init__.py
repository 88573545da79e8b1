"""Programs that are trained in several frameworks, and how each framework spells their parts."""
