//! Clusters of a launch: how many blocks each has, as the function and the attributes of the launch say.

use super::launch::LaunchAttribute;
use crate::sys::{CUlaunchAttributeID, CUresult};

/// Blocks that a cluster may have on every GPU that has clusters. More of them are for those functions alone that
/// allow it.
pub const PORTABLE_CLUSTER_BLOCKS: u32 = 8;
/// Blocks that a cluster of such a function may have at most.
pub const MAX_CLUSTER_BLOCKS: u32 = 16;

/// What a function says about the clusters of its launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ClusterRules {
    /// Blocks of a cluster along x, y and z; zeros where launches may choose.
    pub required: [u32; 3],
    /// Whether each launch has to say how large its clusters are.
    pub must_be_set: bool,
    /// Whether a cluster may have more than [`PORTABLE_CLUSTER_BLOCKS`].
    pub allows_non_portable: bool,
}

impl ClusterRules {
    /// Blocks of a cluster along x, y and z in a launch of this grid; nothing for a launch without clusters.
    ///
    /// # Errors
    /// As NVIDIA's driver (580, H200) `CUDA_ERROR_INVALID_CLUSTER_SIZE`, whatever is wrong: no size where there has to be
    /// one, another one than the function's, too many blocks, or a grid that is no multiple of it.
    pub fn resolve(
        &self,
        grid: [u32; 3],
        attributes: &[LaunchAttribute],
    ) -> Result<Option<[u32; 3]>, CUresult> {
        const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE;
        let named = |id| attributes.iter().rev().find_map(|attribute| size_named(attribute, id));
        let requested = named(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
        let preferred = named(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION);
        let required = (self.required != [0; 3]).then_some(self.required);
        let Some(cluster) = requested.or(required) else {
            return if self.must_be_set || preferred.is_some() { Err(INVALID) } else { Ok(None) };
        };
        let is_multiple = |whole: [u32; 3], part: [u32; 3]| {
            whole.iter().zip(part).all(|(whole, part)| part != 0 && whole.is_multiple_of(part))
        };
        let blocks = cluster.iter().fold(1_u32, |blocks, &count| blocks.saturating_mul(count));
        let limit = if self.allows_non_portable { MAX_CLUSTER_BLOCKS } else { PORTABLE_CLUSTER_BLOCKS };
        let is_valid = required.is_none_or(|required| required == cluster)
            && blocks <= limit
            && is_multiple(grid, cluster)
            && preferred
                .is_none_or(|preferred| is_multiple(preferred, cluster) && is_multiple(grid, preferred));
        if is_valid { Ok(Some(cluster)) } else { Err(INVALID) }
    }
}

/// Blocks of a cluster along x, y and z, if the attribute asks for clusters.
pub fn cluster_dimension(attribute: &LaunchAttribute) -> Option<[u32; 3]> {
    size_named(attribute, CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
}

/// The three numbers of an attribute, if it is the one of this name.
fn size_named(attribute: &LaunchAttribute, id: CUlaunchAttributeID) -> Option<[u32; 3]> {
    let (axes, _) = attribute.value.as_chunks::<4>();
    (attribute.id == id.0).then(|| core::array::from_fn(|axis| u32::from_le_bytes(axes[axis])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(id: CUlaunchAttributeID, size: [u32; 3]) -> LaunchAttribute {
        let mut value = [0; 64];
        size.iter()
            .enumerate()
            .for_each(|(axis, count)| value[4 * axis..][..4].copy_from_slice(&count.to_le_bytes()));
        LaunchAttribute { id: id.0, value }
    }

    fn resolve(
        rules: ClusterRules,
        blocks: u32,
        size: Option<u32>,
        preferred: Option<u32>,
    ) -> Option<Option<u32>> {
        let dimension = size
            .map(|size| attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, [size, 1, 1]));
        let preferred = preferred.map(|size| {
            attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, [size, 1, 1])
        });
        let attributes: Vec<LaunchAttribute> = dimension.into_iter().chain(preferred).collect();
        match rules.resolve([blocks, 1, 1], &attributes) {
            Ok(size) => Some(size.map(|size| size[0])),
            Err(error) => {
                assert_eq!(error, CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
                None
            }
        }
    }

    /// What NVIDIA's driver 580 said to the same launches on an H200.
    #[test]
    fn sizes_are_refused_as_by_nvidias_driver() {
        let free = ClusterRules::default();
        let two = ClusterRules { required: [2, 1, 1], ..free };
        let explicit = ClusterRules { must_be_set: true, ..free };
        let large = ClusterRules { allows_non_portable: true, ..free };
        let incomplete = ClusterRules { required: [2, 0, 0], ..free };
        for (rules, blocks, size, preferred, expected) in [
            (free, 3, None, None, Some(None)),
            (free, 16, Some(8), None, Some(Some(8))),
            (free, 16, Some(16), None, None),
            (free, 9, Some(9), None, None),
            (free, 4, Some(3), None, None),
            (free, 4, Some(0), None, None),
            (free, 2, Some(4), None, None),
            (free, 4, Some(2), Some(4), Some(Some(2))),
            (free, 6, Some(2), Some(4), None),
            (free, 4, None, Some(4), None),
            (two, 4, None, None, Some(Some(2))),
            (two, 3, None, None, None),
            (two, 4, Some(2), None, Some(Some(2))),
            (two, 4, Some(4), None, None),
            (two, 4, Some(1), None, None),
            (explicit, 2, None, None, None),
            (explicit, 2, Some(1), None, Some(Some(1))),
            (ClusterRules { must_be_set: true, ..two }, 2, None, None, Some(Some(2))),
            (large, 16, Some(16), None, Some(Some(16))),
            (large, 32, Some(32), None, None),
            (large, 1 << 31, Some(1 << 31), None, None),
            (incomplete, 4, None, None, None),
        ] {
            assert_eq!(
                resolve(rules, blocks, size, preferred),
                expected,
                "{rules:?}: {blocks} {size:?} {preferred:?}"
            );
        }
    }
}
