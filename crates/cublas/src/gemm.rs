//! Matrix products: `cublas<t>gemm`, batches of them, and the forms with types as arguments.

use causeway_gemm::{Accumulator, ScalarType};

use crate::handle::Handle;
use crate::log;
use crate::operation::{Argument, Product};
use crate::status::{Done, Status};
use crate::types::{compute_type, scalar_type};

/// What all products of one element type have in common: the elements' type, and that of sums and factors.
type Kind = (ScalarType, (Accumulator, ScalarType));

const HALF: Kind = (ScalarType::F16, (Accumulator::Single, ScalarType::F16));
const SINGLE: Kind = (ScalarType::F32, (Accumulator::Single, ScalarType::F32));
const DOUBLE: Kind = (ScalarType::F64, (Accumulator::Double, ScalarType::F64));
const COMPLEX: Kind = (ScalarType::C32, (Accumulator::Single, ScalarType::C32));
const DOUBLE_COMPLEX: Kind = (ScalarType::C64, (Accumulator::Double, ScalarType::C64));

/// Exports the three forms for one element type, with sizes of one type.
macro_rules! typed {
    ($kind:ident, $int:ty: $plain:ident $strided:ident $batched:ident) => {
        /// A product.
        ///
        /// # Safety
        /// As the documentation of cuBLAS requires.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $plain(
            handle: *const Handle,
            left: u32,
            right: u32,
            m: $int,
            n: $int,
            k: $int,
            alpha: *const u8,
            a: *const u8,
            lda: $int,
            b: *const u8,
            ldb: $int,
            beta: *const u8,
            c: *mut u8,
            ldc: $int,
        ) -> Status {
            let matrix = |address, leading: $int| Argument::new(address, $kind.0, leading.into());
            let product = Product {
                operations: [left, right],
                sizes: [m.into(), n.into(), k.into()],
                batch: 1,
                compute: $kind.1,
                factors: [alpha, beta],
                matrices: [matrix(a, lda), matrix(b, ldb), matrix(c, ldc)],
            };
            // SAFETY: the program passes a handle that is null or valid, and factors of this type.
            unsafe { product.run(handle) }.into()
        }

        /// Products of matrices at fixed distances.
        ///
        /// # Safety
        /// As the documentation of cuBLAS requires.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $strided(
            handle: *const Handle,
            left: u32,
            right: u32,
            m: $int,
            n: $int,
            k: $int,
            alpha: *const u8,
            a: *const u8,
            lda: $int,
            stride_a: i64,
            b: *const u8,
            ldb: $int,
            stride_b: i64,
            beta: *const u8,
            c: *mut u8,
            ldc: $int,
            stride_c: i64,
            batch: $int,
        ) -> Status {
            let matrix = |address, leading: $int, stride| {
                Argument::new(address, $kind.0, leading.into()).strided(stride)
            };
            let product = Product {
                operations: [left, right],
                sizes: [m.into(), n.into(), k.into()],
                batch: batch.into(),
                compute: $kind.1,
                factors: [alpha, beta],
                matrices: [matrix(a, lda, stride_a), matrix(b, ldb, stride_b), matrix(c, ldc, stride_c)],
            };
            // SAFETY: the program passes a handle that is null or valid, and factors of this type.
            unsafe { product.run(handle) }.into()
        }

        /// Products of matrices whose addresses are in arrays.
        ///
        /// # Safety
        /// As the documentation of cuBLAS requires.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $batched(
            handle: *const Handle,
            left: u32,
            right: u32,
            m: $int,
            n: $int,
            k: $int,
            alpha: *const u8,
            a: *const u8,
            lda: $int,
            b: *const u8,
            ldb: $int,
            beta: *const u8,
            c: *const u8,
            ldc: $int,
            batch: $int,
        ) -> Status {
            let matrix = |address, leading: $int| Argument::new(address, $kind.0, leading.into()).array();
            let product = Product {
                operations: [left, right],
                sizes: [m.into(), n.into(), k.into()],
                batch: batch.into(),
                compute: $kind.1,
                factors: [alpha, beta],
                matrices: [matrix(a, lda), matrix(b, ldb), matrix(c, ldc)],
            };
            // SAFETY: the program passes a handle that is null or valid, and factors of this type.
            unsafe { product.run(handle) }.into()
        }
    };
}

typed! { HALF, i32: cublasHgemm cublasHgemmStridedBatched cublasHgemmBatched }
typed! { HALF, i64: cublasHgemm_64 cublasHgemmStridedBatched_64 cublasHgemmBatched_64 }
typed! { SINGLE, i32: cublasSgemm_v2 cublasSgemmStridedBatched cublasSgemmBatched }
typed! { SINGLE, i64: cublasSgemm_v2_64 cublasSgemmStridedBatched_64 cublasSgemmBatched_64 }
typed! { DOUBLE, i32: cublasDgemm_v2 cublasDgemmStridedBatched cublasDgemmBatched }
typed! { DOUBLE, i64: cublasDgemm_v2_64 cublasDgemmStridedBatched_64 cublasDgemmBatched_64 }
typed! { COMPLEX, i32: cublasCgemm_v2 cublasCgemmStridedBatched cublasCgemmBatched }
typed! { COMPLEX, i64: cublasCgemm_v2_64 cublasCgemmStridedBatched_64 cublasCgemmBatched_64 }
typed! { COMPLEX, i32: cublasCgemm3m cublasCgemm3mStridedBatched cublasCgemm3mBatched }
typed! { COMPLEX, i64: cublasCgemm3m_64 cublasCgemm3mStridedBatched_64 cublasCgemm3mBatched_64 }
typed! { DOUBLE_COMPLEX, i32: cublasZgemm_v2 cublasZgemmStridedBatched cublasZgemmBatched }
typed! { DOUBLE_COMPLEX, i64: cublasZgemm_v2_64 cublasZgemmStridedBatched_64 cublasZgemmBatched_64 }

/// Arguments of a form with types: `cudaDataType` of A, B and C, and `cublasComputeType_t`.
struct Types {
    function: &'static str,
    elements: [u32; 3],
    compute: u32,
}

/// Matrices with their leading dimensions, before their types are known.
type Untyped = [(*const u8, i64); 3];

impl Types {
    /// Completes a product whose types are arguments, and launches it.
    unsafe fn run(
        self,
        handle: *const Handle,
        [a, b, c]: Untyped,
        product: impl FnOnce((Accumulator, ScalarType), [Argument; 3]) -> Product,
    ) -> Done {
        let types = self.elements.map(scalar_type);
        let [Some(left), Some(right), Some(result)] = types else {
            return Err(log::refused(self.function, "one of the element types is not implemented"));
        };
        let is_complex = result.is_complex();
        let compute = compute_type(self.compute, is_complex)
            .filter(|_| left.is_complex() == is_complex && right.is_complex() == is_complex);
        let Some(compute) = compute else {
            return Err(log::refused(self.function, "the combination of types is not implemented"));
        };
        let matrix =
            |(address, leading): (*const u8, i64), scalar_type| Argument::new(address, scalar_type, leading);
        let matrices = [matrix(a, left), matrix(b, right), matrix(c, result)];
        // SAFETY: the caller's handle is null or valid, and the factors point at values of the type that was
        // found.
        unsafe { product(compute, matrices).run(handle) }
    }
}

/// Exports the forms with types as arguments, with sizes of one type.
macro_rules! with_types {
    ($int:ty: $plain:ident $strided:ident $batched:ident) => {
        /// A product.
        ///
        /// # Safety
        /// As the documentation of cuBLAS requires.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $plain(
            handle: *const Handle,
            left: u32,
            right: u32,
            m: $int,
            n: $int,
            k: $int,
            alpha: *const u8,
            a: *const u8,
            a_type: u32,
            lda: $int,
            b: *const u8,
            b_type: u32,
            ldb: $int,
            beta: *const u8,
            c: *mut u8,
            c_type: u32,
            ldc: $int,
            compute: u32,
            _algorithm: i32,
        ) -> Status {
            let types = Types { function: stringify!($plain), elements: [a_type, b_type, c_type], compute };
            // SAFETY: the program passes a handle that is null or valid, and factors of this type.
            unsafe {
                types.run(handle, [(a, lda.into()), (b, ldb.into()), (c, ldc.into())], |compute, matrices| {
                    Product {
                        operations: [left, right],
                        sizes: [m.into(), n.into(), k.into()],
                        batch: 1,
                        compute,
                        factors: [alpha, beta],
                        matrices,
                    }
                })
            }
            .into()
        }

        /// Products of matrices at fixed distances.
        ///
        /// # Safety
        /// As the documentation of cuBLAS requires.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $strided(
            handle: *const Handle,
            left: u32,
            right: u32,
            m: $int,
            n: $int,
            k: $int,
            alpha: *const u8,
            a: *const u8,
            a_type: u32,
            lda: $int,
            stride_a: i64,
            b: *const u8,
            b_type: u32,
            ldb: $int,
            stride_b: i64,
            beta: *const u8,
            c: *mut u8,
            c_type: u32,
            ldc: $int,
            stride_c: i64,
            batch: $int,
            compute: u32,
            _algorithm: i32,
        ) -> Status {
            let types = Types { function: stringify!($strided), elements: [a_type, b_type, c_type], compute };
            // SAFETY: the program passes a handle that is null or valid, and factors of this type.
            unsafe {
                types.run(
                    handle,
                    [(a, lda.into()), (b, ldb.into()), (c, ldc.into())],
                    |compute, [a, b, c]| Product {
                        operations: [left, right],
                        sizes: [m.into(), n.into(), k.into()],
                        batch: batch.into(),
                        compute,
                        factors: [alpha, beta],
                        matrices: [a.strided(stride_a), b.strided(stride_b), c.strided(stride_c)],
                    },
                )
            }
            .into()
        }

        /// Products of matrices whose addresses are in arrays.
        ///
        /// # Safety
        /// As the documentation of cuBLAS requires.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $batched(
            handle: *const Handle,
            left: u32,
            right: u32,
            m: $int,
            n: $int,
            k: $int,
            alpha: *const u8,
            a: *const u8,
            a_type: u32,
            lda: $int,
            b: *const u8,
            b_type: u32,
            ldb: $int,
            beta: *const u8,
            c: *const u8,
            c_type: u32,
            ldc: $int,
            batch: $int,
            compute: u32,
            _algorithm: i32,
        ) -> Status {
            let types = Types { function: stringify!($batched), elements: [a_type, b_type, c_type], compute };
            // SAFETY: the program passes a handle that is null or valid, and factors of this type.
            unsafe {
                types.run(handle, [(a, lda.into()), (b, ldb.into()), (c, ldc.into())], |compute, matrices| {
                    Product {
                        operations: [left, right],
                        sizes: [m.into(), n.into(), k.into()],
                        batch: batch.into(),
                        compute,
                        factors: [alpha, beta],
                        matrices: matrices.map(Argument::array),
                    }
                })
            }
            .into()
        }
    };
}

with_types! { i32: cublasGemmEx cublasGemmStridedBatchedEx cublasGemmBatchedEx }
with_types! { i64: cublasGemmEx_64 cublasGemmStridedBatchedEx_64 cublasGemmBatchedEx_64 }

/// Exports a form with types of elements as arguments that sums in single precision.
macro_rules! single_sums {
    ($($name:ident $int:ty;)*) => {
        $(
            /// A product that is summed in single precision.
            ///
            /// # Safety
            /// As the documentation of cuBLAS requires.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $name(
                handle: *const Handle, left: u32, right: u32, m: $int, n: $int, k: $int, alpha: *const u8,
                a: *const u8, a_type: u32, lda: $int, b: *const u8, b_type: u32, ldb: $int, beta: *const u8,
                c: *mut u8, c_type: u32, ldc: $int,
            ) -> Status {
                // CUBLAS_COMPUTE_32F
                let elements = [a_type, b_type, c_type];
                let types = Types { function: stringify!($name), elements, compute: 68 };
                let matrices = [(a, lda.into()), (b, ldb.into()), (c.cast_const(), ldc.into())];
                // SAFETY: the program passes a handle that is null or valid, and factors of this type.
                unsafe {
                    types.run(handle, matrices, |compute, matrices| Product {
                        operations: [left, right],
                        sizes: [m.into(), n.into(), k.into()],
                        batch: 1,
                        compute,
                        factors: [alpha, beta],
                        matrices,
                    })
                }
                .into()
            }
        )*
    };
}

single_sums! {
    cublasSgemmEx i32;
    cublasSgemmEx_64 i64;
    cublasCgemmEx i32;
    cublasCgemmEx_64 i64;
}
