//! Launch shape and attributes, and the function's parameters.

use causeway_wire::record;

/// Grid, blocks and dynamic shared memory of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct LaunchShape {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
}

record!(LaunchShape { grid, block, shared_bytes });

/// A `CUlaunchAttribute` that holds no address of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaunchAttribute {
    /// `CUlaunchAttributeID`.
    pub id: u32,
    /// `CUlaunchAttributeValue` as its bytes.
    pub value: [u8; 64],
}

record!(LaunchAttribute { id, value });

/// Where a kernel parameter lies in the parameter buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Bytes from the front of the buffer.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
}

record!(Parameter { offset, size });

/// What the client keeps of a function, so that launching it and asking about it need no round trip.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FunctionInfo {
    /// The (mangled) name.
    pub name: String,
    /// The layout of its parameters, in order.
    pub parameters: Vec<Parameter>,
    /// Values of `CUfunction_attribute`, as pairs of attribute number and value.
    pub attributes: Vec<(i32, i32)>,
}

record!(FunctionInfo { name, parameters, attributes });

impl FunctionInfo {
    /// Bytes of the parameter buffer.
    pub fn parameter_bytes(&self) -> usize {
        self.parameters.iter().map(|p| p.offset as usize + p.size as usize).max().unwrap_or(0)
    }

    /// The value of an attribute, if the server reported it.
    pub fn attribute(&self, attribute: i32) -> Option<i32> {
        self.attributes.iter().find(|(number, _)| *number == attribute).map(|(_, value)| *value)
    }
}
