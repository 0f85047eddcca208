//! Metrics endpoint for Prometheus.
//!
//! Over HTTP at an address of its own, in Prometheus' text format. Whoever reaches the address may read:
//! there is nothing of a client's in it, no names, no addresses, no content, unless the owner asks for the sessions one by one.
//!
//! | Module     | Question it answers                                    |
//! |------------|--------------------------------------------------------|
//! | `families` | What is told?                                          |
//! | `http`     | Who may ask for how long, and what is a request?       |
//! | `text`     | How are numbers written so that Prometheus reads them? |

mod families;
mod http;
mod text;

pub use http::serve;
