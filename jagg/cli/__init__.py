"""The `jagg` command; each verb's work is imported only when the verb runs."""
