//! The commands a back end executes, made from the declaration list.

causeway_api_macros::calls_trait!();
