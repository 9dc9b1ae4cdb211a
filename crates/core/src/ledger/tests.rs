//! The ledger against naive models.
