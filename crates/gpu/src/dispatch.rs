//! From a decoded request to the back end's method, with every handle looked up on the way.

use crate::Calls;
use crate::objects::Objects;
use causeway_api::calls::Request;

causeway_api_macros::dispatch!();
