"""Showing what a run came to: summary.json, live progress, the HTML report, TensorBoard. Reads run directories; trains nothing."""
