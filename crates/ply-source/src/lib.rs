//! The wire: sources, listing, catalog, fetch and verify, resolution
