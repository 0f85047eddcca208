//! Generators, `curandGenerator_t`: algorithm, seed and stream; the lanes' states are in device memory.

use std::sync::Mutex;

use causeway_gemm::{Distribution, Generator as Algorithm, RandomRequest, RandomStep};

use super::status::{Failure, LENGTH_NOT_MULTIPLE, NOT_INITIALIZED, OUT_OF_RANGE, Result};
use crate::driver;
use crate::launch::launch_random;

/// What a generator's handle points at.
pub struct Generator {
    settings: Mutex<Settings>,
}

/// What calls with a generator use.
pub struct Settings {
    algorithm: Algorithm,
    pub seed: u64,
    /// 32-bit numbers that are left out at the beginning.
    pub offset: u64,
    /// `CUstream`
    pub stream: usize,
    /// Address of the lanes' states, or 0.
    state: u64,
    /// Position of the next result, if the state is that of seed and offset.
    pub position: Option<u64>,
}

impl Generator {
    /// A new one, in memory that [`Self::destroy`] releases.
    pub fn create(algorithm: Algorithm) -> *mut Self {
        let settings = Settings { algorithm, seed: 0, offset: 0, stream: 0, state: 0, position: None };
        Box::into_raw(Box::new(Self { settings: Mutex::new(settings) }))
    }

    /// Ends a generator.
    ///
    /// # Safety
    /// It is one of [`Self::create`], and not used any more.
    pub unsafe fn destroy(generator: *mut Self) -> Result<()> {
        if generator.is_null() {
            return Err(Failure(NOT_INITIALIZED));
        }
        // SAFETY: the caller passes what `create` made with `Box::into_raw`, and uses it no more.
        let generator = unsafe { Box::from_raw(generator) };
        let state = generator.settings.lock().map_or(0, |settings| settings.state);
        if state != 0 {
            driver::functions()?.free(state);
        }
        Ok(())
    }

    /// Uses or changes the settings.
    ///
    /// # Safety
    /// The pointer is null or that of a generator.
    pub unsafe fn with<R>(
        generator: *const Self,
        work: impl FnOnce(&mut Settings) -> Result<R>,
    ) -> Result<R> {
        // SAFETY: the caller passes null or what `create` made and `destroy` has not freed.
        let generator = unsafe { generator.as_ref() }.ok_or(Failure(NOT_INITIALIZED))?;
        let mut settings = generator.settings.lock().map_err(|_| Failure(NOT_INITIALIZED))?;
        work(&mut settings)
    }
}

impl Settings {
    /// Has the state of seed and offset made, unless it is there; gives the position of the next result.
    pub fn prepare(&mut self) -> Result<u64> {
        if let Some(position) = self.position {
            return Ok(position);
        }
        let functions = driver::functions()?;
        functions.have_context()?;
        if self.state == 0 {
            let bytes = self.algorithm.lanes() * self.algorithm.lane_bytes();
            self.state = functions.allocate(bytes as usize)?;
        }
        let request = RandomRequest { position: self.offset, ..self.request(RandomStep::Seed) };
        launch_random(&request, self.stream)?;
        let position = self.algorithm.position_after(0, Distribution::Bits, self.offset);
        self.position = Some(position);
        Ok(position)
    }

    /// Has random numbers written.
    pub fn generate(
        &mut self,
        distribution: Distribution,
        results: *mut u8,
        count: usize,
        parameters: [f64; 2],
    ) -> Result<()> {
        let count = count as u64;
        if !count.is_multiple_of(distribution.results()) && self.algorithm.positions_of_lane() == 1 {
            return Err(Failure(LENGTH_NOT_MULTIPLE));
        }
        if count == 0 {
            return Ok(());
        }
        if results.is_null() {
            return Err(Failure(OUT_OF_RANGE));
        }
        let position = self.prepare()?;
        let request = RandomRequest {
            position,
            count,
            results: results as u64,
            parameters,
            distribution: distribution as u32,
            ..self.request(RandomStep::Generate)
        };
        launch_random(&request, self.stream)?;
        self.position = Some(self.algorithm.position_after(position, distribution, count));
        Ok(())
    }

    fn request(&self, step: RandomStep) -> RandomRequest {
        RandomRequest {
            state: self.state,
            seed: self.seed,
            step: step as u32,
            generator: self.algorithm as u32,
            ..RandomRequest::default()
        }
    }
}
