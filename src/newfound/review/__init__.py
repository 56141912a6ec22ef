"""A page in the browser: look at classes, name them, put them right. All that is said goes to the run's journal."""
