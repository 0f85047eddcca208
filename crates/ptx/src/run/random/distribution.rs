//! Distributions: what is made of 32-bit random numbers, as cuRAND makes it.

use std::f64::consts::PI;

use causeway_gemm::{Distribution, MAX_POISSON_MEAN};

/// The most 32-bit numbers that results are made of at once.
pub(super) const MAX_NUMBERS: usize = 4;

const TWO_TO_MINUS_32: f32 = 2.328_306_4e-10;
const TWO_PI: f32 = 6.283_185_5;
/// 2^-53
const TWO_TO_MINUS_53: f64 = 1.110_223_024_625_156_5e-16;

/// A distribution with its parameters.
pub(super) struct Shape {
    distribution: Distribution,
    parameters: [f64; 2],
    poisson: Vec<f64>,
    /// The value of the first entry of `poisson`.
    first: u32,
}

impl Shape {
    /// None if a parameter is out of range.
    pub(super) fn new(distribution: Distribution, parameters: [f64; 2]) -> Option<Self> {
        let (first, poisson) = match distribution {
            Distribution::Poisson => poisson_table(parameters[0])?,
            _ => (0, Vec::new()),
        };
        Some(Self { distribution, parameters, poisson, first })
    }

    /// The bits of one or two results.
    pub(super) fn results(&self, numbers: &[u32; MAX_NUMBERS]) -> [u64; 2] {
        let [a, b, c, d] = *numbers;
        let [mean, deviation] = self.parameters;
        let single = |value: f32| u64::from(value.to_bits());
        match self.distribution {
            Distribution::Bits => [a.into(), 0],
            Distribution::Uniform => [single(uniform(a)), 0],
            Distribution::UniformDouble => [uniform_double(a, b).to_bits(), 0],
            Distribution::Normal => {
                normal_pair(a, b).map(|value| single(mean as f32 + value * deviation as f32))
            }
            Distribution::LogNormal => {
                normal_pair(a, b).map(|value| single((mean as f32 + value * deviation as f32).exp()))
            }
            Distribution::NormalDouble => {
                normal_pair_double(a, b, c, d).map(|value| (mean + value * deviation).to_bits())
            }
            Distribution::LogNormalDouble => {
                normal_pair_double(a, b, c, d).map(|value| (mean + value * deviation).exp().to_bits())
            }
            Distribution::Poisson => {
                let probability = (f64::from(a) + 0.5) / 2_f64.powi(32);
                let index = self.poisson.partition_point(|cumulative| *cumulative < probability);
                let index = index.min(self.poisson.len() - 1) as u32;
                [(self.first + index).into(), 0]
            }
        }
    }
}

fn uniform(number: u32) -> f32 {
    number as f32 * TWO_TO_MINUS_32 + TWO_TO_MINUS_32 / 2.0
}

/// 53 bits of two numbers.
fn wide(low: u32, high: u32) -> f64 {
    (u64::from(low) ^ u64::from(high) << 21) as f64
}

fn uniform_double(low: u32, high: u32) -> f64 {
    wide(low, high) * TWO_TO_MINUS_53 + TWO_TO_MINUS_53 / 2.0
}

/// Box and Muller's transformation.
fn normal_pair(radius: u32, angle: u32) -> [f32; 2] {
    let scale = TWO_TO_MINUS_32 * TWO_PI;
    let angle = angle as f32 * scale + scale / 2.0;
    let radius = (-2.0 * uniform(radius).ln()).sqrt();
    [radius * angle.sin(), radius * angle.cos()]
}

fn normal_pair_double(a: u32, b: u32, c: u32, d: u32) -> [f64; 2] {
    let angle = wide(c, d) * (2.0 * TWO_TO_MINUS_53) + TWO_TO_MINUS_53;
    let radius = (-2.0 * uniform_double(a, b).ln()).sqrt();
    [radius * (angle * PI).sin(), radius * (angle * PI).cos()]
}

/// The cumulative probabilities around the mean, and the value of the first: beyond, less than a number of 32 bits
/// can tell lies.
fn poisson_table(mean: f64) -> Option<(u32, Vec<f64>)> {
    if !(mean > 0.0 && mean <= MAX_POISSON_MEAN) {
        return None;
    }
    let (mode, width) = (mean.floor(), (10.0 * mean.sqrt()).ceil() + 30.0);
    let first = (mode - width).max(0.0);
    let before = (mode - first) as usize;
    let mut weights = vec![1.0; before + width as usize + 1];
    for index in (0..before).rev() {
        weights[index] = weights[index + 1] * (first + index as f64 + 1.0) / mean;
    }
    for index in before + 1..weights.len() {
        weights[index] = weights[index - 1] * mean / (first + index as f64);
    }
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    for weight in &mut weights {
        sum += *weight / total;
        *weight = sum;
    }
    Some((first as u32, weights))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_come_from_curands_uniform_ones() {
        // cuRAND 10.3.10 on the host, XORWOW, seed 1234: the first lane's first four numbers.
        let numbers = [0x253d_5e15, 0x6f55_8604, 0xdee6_daf2, 0x7485_b394];
        let shape = |distribution| Shape::new(distribution, [0.0, 1.0]).unwrap();
        let found = shape(Distribution::Normal).results(&numbers).map(|bits| f32::from_bits(bits as u32));
        assert!((found[0] - 0.780_973_55).abs() < 1e-6 && (found[1] + 1.801_578_2).abs() < 1e-6);
        let found = shape(Distribution::NormalDouble).results(&numbers).map(f64::from_bits);
        assert!((found[0] - 0.358_739_8).abs() < 1e-7 && (found[1] + 1.239_592_5).abs() < 1e-7);
        let found = f64::from_bits(shape(Distribution::UniformDouble).results(&numbers)[0]);
        assert!((found - 0.434_898_8).abs() < 1e-7);
    }

    #[test]
    fn poisson_numbers_have_mean_and_variance_of_the_distribution() {
        for mean in [0.3, 5.0, 40.0, 1e5] {
            let shape = Shape::new(Distribution::Poisson, [mean, 0.0]).unwrap();
            let steps = 20_000_u32;
            let values: Vec<f64> = (0..steps)
                .map(|step| shape.results(&[(u64::from(step) * 214_748) as u32, 0, 0, 0])[0] as f64)
                .collect();
            let average = values.iter().sum::<f64>() / f64::from(steps);
            let variance =
                values.iter().map(|value| (value - average).powi(2)).sum::<f64>() / f64::from(steps);
            assert!((average - mean).abs() < mean * 1e-2 && (variance - mean).abs() < mean * 2e-2, "{mean}");
        }
        assert!(Shape::new(Distribution::Poisson, [f64::NAN, 0.0]).is_none());
    }
}
