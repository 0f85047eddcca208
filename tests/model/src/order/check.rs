//! Which work makes sense at all.

use super::{HappensBefore, Refusal};
use crate::program::{BufferKind, CopyForm, Region, Work};

impl HappensBefore<'_> {
    /// Refuses work that no driver would do.
    pub(super) fn check(&self, work: &Work, device: usize) -> Result<(), Refusal> {
        let (source, target) = (work.source(), work.target());
        let kinds = (source.map(|region| self.kind(region)), target.map(|region| self.kind(region)));
        let regions = || source.into_iter().chain(target);
        match work {
            Work::Copy { to, from, form } => {
                let shape = |region: &Region| (region.width, region.height, region.depth);
                if shape(to) != shape(from) || to.overlaps(from) {
                    return Err(Refusal::Invalid("regions that do not fit each other"));
                }
                let fits = match form {
                    CopyForm::Directed | CopyForm::Unified => to.is_linear(),
                    CopyForm::Rows => to.depth == 1,
                    CopyForm::Slices => true,
                };
                let is_pageable = |kind| kind == Some(BufferKind::Pageable);
                let is_device = |kind: Option<BufferKind>| kind.is_some_and(BufferKind::is_device);
                if !fits
                    || is_pageable(kinds.0) && !is_device(kinds.1)
                    || is_pageable(kinds.1) && !is_device(kinds.0)
                {
                    return Err(Refusal::Invalid("a copy that has no such form"));
                }
                if regions().all(|region| {
                    let buffer = &self.program.buffers[region.buffer];
                    buffer.kind.is_device() && buffer.device != device
                }) || (!to.is_linear() && regions().any(|region| self.is_of_other(region, device)))
                {
                    return Err(Refusal::Invalid("memory of another device"));
                }
            }
            Work::HostRead { .. } | Work::HostWrite { .. } => {
                if regions().any(|region| {
                    let kind = self.kind(region);
                    !region.is_linear() || kind.is_device() || kind == BufferKind::Managed
                }) {
                    return Err(Refusal::Invalid("memory that a host function does not have"));
                }
            }
            Work::Fill { .. } | Work::Generate { .. } | Work::Add { .. } | Work::Move { .. } => {
                if regions().any(|region| {
                    let buffer = &self.program.buffers[region.buffer];
                    !buffer.kind.has_device_pointer() || buffer.device != device
                }) {
                    return Err(Refusal::Invalid("memory that a kernel does not have"));
                }
                if let Work::Move { to, from, .. } = work
                    && (to.overlaps(from) || to.width != from.width)
                {
                    return Err(Refusal::Invalid("regions that do not fit each other"));
                }
            }
        }
        Ok(())
    }

    fn is_of_other(&self, region: &Region, device: usize) -> bool {
        let buffer = &self.program.buffers[region.buffer];
        buffer.kind.is_device() && buffer.device != device
    }
}
