"""The report's figures, one module for each kind; `jagg.report.plots` lists them."""
