//! Typed function pointers of the driver library, made from the declaration list.

causeway_api_macros::driver_library!();
