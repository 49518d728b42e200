"""Archives read at reduced resolution: rates, copies, summaries and what is estimated from them."""
