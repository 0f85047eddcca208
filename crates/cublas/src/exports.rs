//! Exported functions whose body is a result.

/// Exports functions whose body is a result.
macro_rules! functions {
    ($($(#[$comment:meta])* fn $name:ident($($argument:ident: $ty:ty),*) $body:block)*) => {
        $(
            $(#[$comment])*
            ///
            /// # Safety
            /// As the documentation of cuBLAS requires.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, unused_unsafe)]
            pub unsafe extern "C" fn $name($($argument: $ty),*) -> Status {
                // SAFETY: as the caller promises: handles and descriptors are valid or null, pointers lead to
                // values, and buffers have the sizes given.
                let body = || -> Done { unsafe { $body } };
                body().into()
            }
        )*
    };
}

pub(crate) use functions;
