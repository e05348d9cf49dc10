//! From the inner products of some vectors to the factors of a combination of them.

/// How the factors follow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Rule {
    /// The point `t` on the arc from the first to the second; on the line where they are closer to parallel than `threshold`.
    Arc {
        t: f64,
        least_norm: f64,
        threshold: f64,
    },
    /// The same for vectors that are almost never taken for parallel.
    FineArc { t: f64 },
    /// The weighted mean in the tangent plane at their mean direction.
    Tangent {
        weights: Vec<f64>,
        normalize: bool,
        epsilon: f64,
    },
    /// The mean direction that is nearest to all, and the mean length.
    Karcher {
        max_iterations: usize,
        tolerance: f64,
    },
    /// The mean, drawn towards zero by how little the inputs agree.
    Stock,
}

/// The inner products of some vectors.
pub(super) struct Products<'a> {
    pub(super) count: usize,
    pub(super) products: &'a [f64],
}

impl Products<'_> {
    fn of(&self, i: usize, j: usize) -> f64 {
        self.products[i * self.count + j]
    }

    fn norm(&self, i: usize) -> f64 {
        self.of(i, i).max(0.0).sqrt()
    }

    /// The inner product of two combinations, given by their factors.
    fn between(&self, left: &[f64], right: &[f64]) -> f64 {
        let mut sum = 0.0;
        for (i, left) in left.iter().enumerate() {
            for (j, right) in right.iter().enumerate() {
                sum += left * right * self.of(i, j);
            }
        }
        sum
    }

    fn length(&self, factors: &[f64]) -> f64 {
        self.between(factors, factors).max(0.0).sqrt()
    }
}

impl Rule {
    pub(super) fn factors(&self, products: &Products) -> Result<Vec<f64>, &'static str> {
        match self {
            Rule::Arc {
                t,
                least_norm,
                threshold,
            } => {
                let norm = |i| {
                    Some(products.norm(i))
                        .filter(|norm| norm > least_norm)
                        .unwrap_or(1.0)
                };
                let cosine = products.of(0, 1) / (norm(0) * norm(1));
                Ok(arc(*t, cosine, cosine.abs() > *threshold))
            }
            Rule::FineArc { t } => {
                let cosine =
                    products.of(0, 1) / (products.norm(0).max(1e-7) * products.norm(1).max(1e-7));
                let cosine = cosine.clamp(-1.0, 1.0);
                Ok(arc(*t, cosine, 1.0 - cosine * cosine <= 1e-16))
            }
            Rule::Tangent {
                weights,
                normalize,
                epsilon,
            } => tangent(products, weights, *normalize, *epsilon),
            Rule::Karcher {
                max_iterations,
                tolerance,
            } => Ok(karcher(products, *max_iterations, *tolerance)),
            Rule::Stock => Ok(stock(products)),
        }
    }
}

fn arc(t: f64, cosine: f64, is_straight: bool) -> Vec<f64> {
    if is_straight {
        return vec![1.0 - t, t];
    }
    let angle = cosine.clamp(-1.0, 1.0).acos();
    let sine = angle.sin();
    vec![((1.0 - t) * angle).sin() / sine, (t * angle).sin() / sine]
}

fn tangent(
    products: &Products,
    weights: &[f64],
    normalize: bool,
    epsilon: f64,
) -> Result<Vec<f64>, &'static str> {
    let sum: f64 = weights.iter().sum();
    let weights: Vec<f64> = weights
        .iter()
        .map(|weight| if normalize { weight / sum } else { *weight })
        .collect();
    let inverse: Vec<f64> = (0..products.count)
        .map(|i| 1.0 / (products.norm(i) + epsilon))
        .collect();
    let mut mean: Vec<f64> = weights
        .iter()
        .zip(&inverse)
        .map(|(weight, inverse)| weight * inverse)
        .collect();
    let length = products.length(&mean);
    if length < epsilon {
        return match products.count {
            2 => Ok(weights),
            _ => Err("the weighted sum of the directions is zero; other weights may help"),
        };
    }
    mean.iter_mut().for_each(|factor| *factor /= length);
    let mut flat = vec![0.0; products.count];
    for (i, (weight, inverse)) in weights.iter().zip(&inverse).enumerate() {
        let mut unit = vec![0.0; products.count];
        unit[i] = *inverse;
        let along = products.between(&unit, &mean);
        for (flat, (unit, mean)) in flat.iter_mut().zip(unit.iter().zip(&mean)) {
            *flat += weight * (unit - along * mean);
        }
    }
    let angle = products.length(&flat) + epsilon;
    let length: f64 = weights
        .iter()
        .enumerate()
        .map(|(i, weight)| weight * products.norm(i))
        .sum();
    let sine = angle.sin() / angle;
    let factor = |(mean, flat): (&f64, &f64)| (mean * angle.cos() + flat * sine) * length;
    Ok(mean.iter().zip(&flat).map(factor).collect())
}

fn karcher(products: &Products, max_iterations: usize, tolerance: f64) -> Vec<f64> {
    let count = products.count;
    let norms: Vec<f64> = (0..count).map(|i| products.norm(i)).collect();
    let valid: Vec<usize> = (0..count).filter(|i| norms[*i] > tolerance).collect();
    let Some(first) = valid.first() else {
        return vec![0.0; count];
    };
    let share = 1.0 / valid.len() as f64;
    let unit = |i: usize| {
        let mut unit = vec![0.0; count];
        unit[i] = 1.0 / norms[i];
        unit
    };
    let mut mean = vec![0.0; count];
    for i in &valid {
        mean[*i] = share / norms[*i];
    }
    let length = products.length(&mean);
    match length < tolerance {
        true => mean = unit(*first),
        false => mean.iter_mut().for_each(|factor| *factor /= length),
    }
    for _ in 0..max_iterations {
        let mut flat = vec![0.0; count];
        for i in &valid {
            let unit = unit(*i);
            let cosine = products.between(&mean, &unit).clamp(-1.0, 1.0);
            let angle = cosine.acos();
            if angle < tolerance {
                continue;
            }
            let stretch = share * angle / angle.sin();
            for (flat, (unit, mean)) in flat.iter_mut().zip(unit.iter().zip(&mean)) {
                *flat += stretch * (unit - cosine * mean);
            }
        }
        let angle = products.length(&flat);
        if angle < tolerance {
            break;
        }
        for (mean, flat) in mean.iter_mut().zip(&flat) {
            *mean = angle.cos() * *mean + angle.sin() / angle * flat;
        }
        let length = products.length(&mean);
        if length > tolerance {
            mean.iter_mut().for_each(|factor| *factor /= length);
        }
    }
    let length = norms.iter().sum::<f64>() / count as f64;
    mean.iter().map(|factor| factor * length).collect()
}

fn stock(products: &Products) -> Vec<f64> {
    let count = products.count;
    let mut cosines = Vec::new();
    for i in 0..count {
        for j in i + 1..count {
            let norms = (products.norm(i) * products.norm(j)).max(1e-6);
            cosines.push((products.of(i, j) / norms).clamp(-1.0, 1.0));
        }
    }
    let cosine = cosines.iter().sum::<f64>() / cosines.len() as f64;
    let divisor = 1.0 + (count - 1) as f64 * cosine;
    let t = match divisor.abs() < 1e-6 {
        true => 0.0,
        false => count as f64 * cosine / divisor,
    };
    vec![t / count as f64; count]
}
