"""The panels of the page. Each module here defines a PANEL; `page.panel.all_panels` finds them."""
