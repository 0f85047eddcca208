//! The commands a back end executes, made from the declaration list: a trait for each subject, which a back
//! end implements where it deals with that subject, and [`Calls`] for all of them.

causeway_api_macros::calls_traits!();
