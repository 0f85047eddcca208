//! How bytes of copies come into the program's memory.

pub mod landing;
