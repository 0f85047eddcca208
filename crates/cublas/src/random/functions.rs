//! Functions of generators, and the distributions.

use core::ffi::c_int;

use causeway_gemm::{Distribution, Generator as Algorithm, MAX_POISSON_MEAN};

use super::generator::Generator;
use super::status::{Failure, OUT_OF_RANGE, Result, random_functions, refused};

/// The version that is reported: that of CUDA 13.0.
const VERSION: [c_int; 3] = [10, 4, 0];

unsafe fn write_value<T>(to: *mut T, value: T) -> Result<()> {
    if to.is_null() {
        return Err(Failure(OUT_OF_RANGE));
    }
    // SAFETY: `to` is not null, so the caller has room for the value there.
    unsafe { to.write(value) };
    Ok(())
}

random_functions! {
    /// Makes a generator of a type: `curandRngType_t`.
    fn curandCreateGenerator(generator: *mut *mut Generator, kind: u32) {
        let algorithm = match kind {
            100 | 101 => Algorithm::Xorwow,
            161 => Algorithm::Philox,
            _ => {
                let reason = "generators other than XORWOW and Philox4_32_10 are not implemented";
                return refused("curandCreateGenerator", reason);
            }
        };
        if generator.is_null() {
            return Err(Failure(OUT_OF_RANGE));
        }
        crate::launch::prepare()?;
        write_value(generator, Generator::create(algorithm))
    }

    /// Ends a generator.
    fn curandDestroyGenerator(generator: *mut Generator) { Generator::destroy(generator) }

    /// Sets the stream of later calls.
    fn curandSetStream(generator: *const Generator, stream: usize) {
        Generator::with(generator, |settings| {
            settings.stream = stream;
            Ok(())
        })
    }

    /// Sets the seed, and begins anew.
    fn curandSetPseudoRandomGeneratorSeed(generator: *const Generator, seed: u64) {
        Generator::with(generator, |settings| {
            (settings.seed, settings.position) = (seed, None);
            Ok(())
        })
    }

    /// Sets how many numbers are left out, and begins anew.
    fn curandSetGeneratorOffset(generator: *const Generator, offset: u64) {
        Generator::with(generator, |settings| {
            (settings.offset, settings.position) = (offset, None);
            Ok(())
        })
    }

    /// Sets the order of results: `curandOrdering_t`. There is one; the best, the legacy and the dynamic one are the
    /// same.
    fn curandSetGeneratorOrdering(generator: *const Generator, ordering: u32) {
        Generator::with(generator, |_| Ok(()))?;
        match ordering {
            100 | 101 | 103 | 104 => Ok(()),
            102 => refused("curandSetGeneratorOrdering", "CURAND_ORDERING_PSEUDO_SEEDED is not implemented"),
            _ => Err(Failure(OUT_OF_RANGE)),
        }
    }

    /// Makes the state of seed and offset.
    fn curandGenerateSeeds(generator: *const Generator) {
        Generator::with(generator, |settings| settings.prepare().map(drop))
    }

    /// The version.
    fn curandGetVersion(version: *mut c_int) {
        write_value(version, VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2])
    }

    /// A part of the version: `libraryPropertyType`.
    fn curandGetProperty(property: u32, value: *mut c_int) {
        write_value(value, *VERSION.get(property as usize).ok_or(Failure(OUT_OF_RANGE))?)
    }

    /// Poisson's distribution.
    fn curandGeneratePoisson(generator: *const Generator, results: *mut u32, count: usize, mean: f64) {
        if !(mean > 0.0 && mean <= MAX_POISSON_MEAN) {
            return Err(Failure(OUT_OF_RANGE));
        }
        let parameters = [mean, 0.0];
        Generator::with(generator, |settings| {
            settings.generate(Distribution::Poisson, results.cast(), count, parameters)
        })
    }
}

/// Exports the distributions: names, their parameters' type, and which parameters they have.
macro_rules! distributions {
    ($($name:ident $distribution:ident ($($parameter:ident: $ty:ty),*);)*) => {
        random_functions! {
            $(
                /// Writes random numbers of a distribution.
                fn $name(generator: *const Generator, results: *mut u8, count: usize $(, $parameter: $ty)*) {
                    let mut parameters = [0.0, 0.0];
                    for (to, value) in parameters.iter_mut().zip([$(f64::from($parameter)),*] as [f64; _]) {
                        *to = value;
                    }
                    Generator::with(generator, |settings| {
                        settings.generate(Distribution::$distribution, results, count, parameters)
                    })
                }
            )*
        }
    };
}

distributions! {
    curandGenerate Bits ();
    curandGenerateUniform Uniform ();
    curandGenerateUniformDouble UniformDouble ();
    curandGenerateNormal Normal (mean: f32, deviation: f32);
    curandGenerateNormalDouble NormalDouble (mean: f64, deviation: f64);
    curandGenerateLogNormal LogNormal (mean: f32, deviation: f32);
    curandGenerateLogNormalDouble LogNormalDouble (mean: f64, deviation: f64);
}
