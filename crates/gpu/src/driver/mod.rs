//! The real driver.
