//! Textures and surfaces: images in device memory that kernels read by coordinates, and what they read.
//!
//! How a texture is sampled is what NVIDIA's CUDA Programming Guide says under "Texture Fetching"; what
//! instructions there are, PTX. Who makes a [`Texture`] or [`Surface`] vouches that its images lie in the address
//! space; bounds of coordinates are checked here, for whatever a kernel gives.
//!
//! | question | module |
//! | --- | --- |
//! | what is a texture, a surface | `types` |
//! | what is in a texel, and how is it read | `texel` |
//! | which texels does a coordinate mean, with which weights, and which face of a cube | `coordinate` |
//! | which level of a mipmapped texture is read | `level` |
//! | what does a fetch give | `fetch` |
//! | what do queries give | `query` |
//! | what do a surface's loads and stores touch | `surface` |

mod coordinate;
#[cfg(test)]
mod examples;
mod fetch;
mod level;
mod query;
mod surface;
#[cfg(test)]
mod tests;
mod texel;
mod types;

pub(crate) use fetch::{Coordinates, Detail, Geometry, TexturePosition};
pub(crate) use query::{Query, of_surface, of_texture};
pub(crate) use surface::{Boundary, OutOfBounds};
pub use types::{AddressMode, Channel, Filter, Image, Sampling, Slices, Surface, TexelFormat, Texture};
