//! Textures and surfaces: images in device memory that kernels read by coordinates, and what they read.
//!
//! How a texture is sampled is what NVIDIA's CUDA Programming Guide says under "Texture Fetching"; what
//! instructions there are, PTX. Who makes a [`Texture`] or [`Surface`] vouches that its images lie in the address
//! space; bounds of coordinates are checked here, for whatever a kernel gives.
//!
//! | module | contents |
//! | --- | --- |
//! | `types` | Types of textures and surfaces |
//! | `texel` | Texel formats: decoding of channels |
//! | `coordinate` | Texture coordinates: address modes, texels and weights along an axis |
//! | `level` | Mipmap level selection: levels and weights |
//! | `fetch` | Texture fetch: filtering of texels |
//! | `query` | Texture and surface queries (`txq`, `suq`) |
//! | `surface` | Surface loads and stores (`suld`, `sust`) |

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
