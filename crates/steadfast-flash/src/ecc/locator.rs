//! From syndromes to the positions of errors: the error locator polynomial and its roots.
//!
//! The locator of errors at the degrees `e_1 … e_v` is `Λ(x) = Π (1 + α^e_i · x)`. The
//! Berlekamp-Massey algorithm finds it, in the form for binary codes, where every second step
//! changes nothing. A Chien search finds its roots by trying degrees. Each root is divided out, and
//! a closed formula gives the last two. So one or two errors, the usual case on a good part, need
//! no search.

use super::field::{self, ORDER};

/// Most flips that a code of this module corrects.
pub(super) const STRENGTH_MAX: usize = 8;

/// Coefficients of a polynomial, lowest first.
type Polynomial = [u16; STRENGTH_MAX + 1];

/// The degrees of the wrong coefficients of a codeword.
pub(super) struct Errors {
    degrees: [usize; STRENGTH_MAX],
    count: usize,
}

impl Errors {
    /// Each degree once.
    pub(super) fn degrees(&self) -> impl Iterator<Item = usize> {
        self.degrees.iter().copied().take(self.count)
    }

    /// Number of errors.
    pub(super) fn count(&self) -> u32 {
        self.count as u32
    }

    /// Adds the error of a root of the locator: the degree is the logarithm of the root's inverse.
    /// `None` if it is outside the codeword, already known, or one too many.
    fn add(&mut self, degree: usize, length: usize) -> Option<()> {
        if degree >= length || self.degrees().any(|known| known == degree) {
            return None;
        }
        *self.degrees.get_mut(self.count)? = degree;
        self.count += 1;
        Some(())
    }
}

/// The errors that explain `syndromes` (an even number of them, `S_1` first) in a codeword of
/// `length` bits. `None` if no pattern of at most half as many errors does.
pub(super) fn find(syndromes: &[u16], length: usize) -> Option<Errors> {
    let (locator, degree) = locator(syndromes)?;
    roots(locator, degree, length)
}

/// The locator and its degree.
fn locator(syndromes: &[u16]) -> Option<(Polynomial, usize)> {
    let strength = (syndromes.len() / 2).min(STRENGTH_MAX);
    let mut locator: Polynomial = [0; STRENGTH_MAX + 1];
    locator[0] = 1;
    let mut previous = locator;
    let mut previous_discrepancy = 1;
    let mut errors = 0;
    // Shift of `previous`.
    let mut gap = 1;
    for step in (0..2 * strength).step_by(2) {
        let discrepancy = (0..=errors.min(step))
            .fold(0, |sum, index| sum ^ field::multiply(locator[index], syndromes[step - index]));
        if discrepancy != 0 {
            let factor = field::divide(discrepancy, previous_discrepancy)?;
            let old = locator;
            for (index, coefficient) in previous.into_iter().enumerate() {
                let term = field::multiply(factor, coefficient);
                if term != 0 {
                    // More errors than the code corrects have a locator of a higher degree.
                    *locator.get_mut(index + gap)? ^= term;
                }
            }
            if 2 * errors <= step {
                errors = step + 1 - errors;
                previous = old;
                previous_discrepancy = discrepancy;
                gap = 0;
            }
        }
        gap += 2;
    }
    let degree = locator.iter().rposition(|coefficient| *coefficient != 0)?;
    (degree == errors && degree <= strength && degree > 0).then_some((locator, degree))
}

/// The errors at the inverses of all roots of the locator. `None` unless it has `degree` different
/// roots inside the codeword.
fn roots(mut locator: Polynomial, mut degree: usize, length: usize) -> Option<Errors> {
    let mut errors = Errors { degrees: [0; STRENGTH_MAX], count: 0 };
    let mut from = 0;
    while degree > 2 {
        let found = search(&locator[..=degree], from, length)?;
        errors.add(found, length)?;
        divide_out(&mut locator, degree, found);
        degree -= 1;
        from = found + 1;
    }
    if degree == 2 {
        // x = (b/a)·y turns a·x² + b·x + c into y² + y + a·c/b²; without b both roots are the same.
        let [c, b, a, ..] = locator;
        let constant = field::divide(field::multiply(a, c), field::multiply(b, b))?;
        let y = field::solve_quadratic(constant)?;
        let scale = field::divide(b, a)?;
        for y in [y, y ^ 1] {
            errors.add(inverse_logarithm(field::multiply(scale, y))?, length)?;
        }
    } else {
        let root = field::divide(locator[0], locator[1])?;
        errors.add(inverse_logarithm(root)?, length)?;
    }
    Some(errors)
}

fn inverse_logarithm(element: u16) -> Option<usize> {
    field::logarithm(element).map(|logarithm| (ORDER - logarithm) % ORDER)
}

/// The first degree from `from` on, below `length`, whose `α^-degree` is a root of the polynomial.
fn search(polynomial: &[u16], from: usize, length: usize) -> Option<usize> {
    // Each term as a logarithm: the next degree subtracts its exponent.
    let mut terms = [(0, 0); STRENGTH_MAX];
    let mut count = 0;
    for (exponent, coefficient) in polynomial.iter().enumerate().skip(1) {
        if let Some(logarithm) = field::logarithm(*coefficient) {
            let start = (logarithm + (ORDER - from % ORDER) * exponent) % ORDER;
            *terms.get_mut(count)? = (start, exponent);
            count += 1;
        }
    }
    let terms = terms.get_mut(..count)?;
    let constant = *polynomial.first()?;
    (from..length).find(|_| {
        let mut sum = constant;
        for (logarithm, exponent) in terms.iter_mut() {
            sum ^= field::power_reduced(*logarithm);
            *logarithm = match logarithm.checked_sub(*exponent) {
                Some(next) => next,
                None => *logarithm + ORDER - *exponent,
            };
        }
        sum == 0
    })
}

/// Divides the polynomial by its factor `1 + α^error·x`, which belongs to the error at `error`.
fn divide_out(polynomial: &mut Polynomial, degree: usize, error: usize) {
    let factor = field::power(error);
    // q_0 = p_0, q_i = p_i + factor·q_(i-1); the last one is the remainder, zero.
    for index in 1..=degree {
        polynomial[index] ^= field::multiply(factor, polynomial[index - 1]);
    }
    debug_assert_eq!(polynomial[degree], 0, "only roots are divided out");
}
