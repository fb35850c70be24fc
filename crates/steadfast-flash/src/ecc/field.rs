//! Arithmetic in GF(2^13), the field of the BCH codes.
//!
//! Elements are polynomials over GF(2) modulo `x^13 + x^4 + x^3 + x + 1`, stored in 13 bits. Linux
//! and most controllers use this primitive polynomial for codewords of 512 bytes, so parities are
//! interchangeable.
//!
//! Products use two tables (32 KiB of constants). No function allocates or fails.

/// Bits of an element.
pub(super) const BITS: usize = 13;

/// Elements other than zero; the order of `α`.
pub(super) const ORDER: usize = (1 << BITS) - 1;

/// `x^13 + x^4 + x^3 + x + 1`.
const POLYNOMIAL: u32 = 0x201b;

/// `POWERS[i]` is `α^i`.
static POWERS: [u16; ORDER] = powers();

/// `LOGARITHMS[α^i]` is `i`; the entry of zero is never used.
static LOGARITHMS: [u16; ORDER + 1] = logarithms();

/// `HALF_TRACES[i]` is the half trace of the element with only bit `i`: see [`solve_quadratic`].
static HALF_TRACES: [u16; BITS] = half_traces();

const fn powers() -> [u16; ORDER] {
    let mut table = [0; ORDER];
    let mut element = 1u32;
    let mut index = 0;
    while index < ORDER {
        table[index] = element as u16;
        element = times_alpha(element);
        index += 1;
    }
    table
}

const fn logarithms() -> [u16; ORDER + 1] {
    let mut table = [0; ORDER + 1];
    let mut element = 1u32;
    let mut index = 0;
    while index < ORDER {
        table[element as usize] = index as u16;
        element = times_alpha(element);
        index += 1;
    }
    table
}

const fn half_traces() -> [u16; BITS] {
    let mut table = [0; BITS];
    let mut bit = 0;
    while bit < BITS {
        let mut power = 1u32 << bit;
        let mut sum = power;
        let mut index = 0;
        while index < BITS / 2 {
            power = slow_multiply(power, power);
            power = slow_multiply(power, power);
            sum ^= power;
            index += 1;
        }
        table[bit] = sum as u16;
        bit += 1;
    }
    table
}

const fn times_alpha(element: u32) -> u32 {
    let shifted = element << 1;
    if shifted >> BITS == 0 { shifted } else { shifted ^ POLYNOMIAL }
}

/// The product without tables, for constants computed at compile time.
pub(super) const fn slow_multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut a, mut b) = (0, a, b);
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = times_alpha(a);
        b >>= 1;
    }
    product
}

/// `α^exponent`.
pub(super) fn power(exponent: usize) -> u16 {
    POWERS[exponent % ORDER]
}

/// `α^exponent` of an exponent below [`ORDER`], for loops that keep it below.
pub(super) fn power_reduced(exponent: usize) -> u16 {
    debug_assert!(exponent < ORDER, "exponents are kept below the order");
    POWERS[exponent]
}

/// The logarithm to the base `α`; `None` for zero.
pub(super) fn logarithm(element: u16) -> Option<usize> {
    (element != 0).then(|| usize::from(LOGARITHMS[usize::from(element) & ORDER]))
}

/// The product of two elements.
pub(super) fn multiply(a: u16, b: u16) -> u16 {
    match (logarithm(a), logarithm(b)) {
        (Some(a), Some(b)) => power(a + b),
        _ => 0,
    }
}

/// The quotient of two elements; `None` if the divisor is zero.
pub(super) fn divide(a: u16, b: u16) -> Option<u16> {
    let divisor = logarithm(b)?;
    Some(logarithm(a).map_or(0, |dividend| power(dividend + ORDER - divisor)))
}

/// One solution of `y² + y = constant`; the other one is `y + 1`. `None` if there is none in the
/// field.
///
/// In a field of an odd number of bits the half trace `c + c^4 + c^16 + …` is a solution if there
/// is one. It is linear, so the half traces of 13 elements give all others.
pub(super) fn solve_quadratic(constant: u16) -> Option<u16> {
    let solution =
        (0..BITS).filter(|bit| constant >> bit & 1 != 0).fold(0, |sum, bit| sum ^ HALF_TRACES[bit]);
    (multiply(solution, solution) ^ solution == constant).then_some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_generates_every_element_once() {
        let mut seen = [false; ORDER + 1];
        for exponent in 0..ORDER {
            let element = usize::from(power(exponent));
            assert!(element != 0 && !seen[element]);
            seen[element] = true;
            assert_eq!(logarithm(element as u16), Some(exponent));
        }
        assert_eq!(power(ORDER), 1);
        assert_eq!(logarithm(0), None);
    }

    #[test]
    fn tables_multiply_as_polynomials_do() {
        for a in (0..=ORDER as u32).step_by(37) {
            for b in (0..=ORDER as u32).step_by(41) {
                let product = slow_multiply(a, b);
                assert_eq!(u32::from(multiply(a as u16, b as u16)), product);
                if b != 0 {
                    assert_eq!(divide(product as u16, b as u16), Some(a as u16));
                }
            }
        }
        assert_eq!(divide(5, 0), None);
    }

    #[test]
    fn half_of_all_quadratics_have_solutions() {
        let mut solved = 0;
        for constant in 0..=ORDER as u16 {
            if let Some(y) = solve_quadratic(constant) {
                assert_eq!(multiply(y, y) ^ y, constant);
                solved += 1;
            }
        }
        assert_eq!(2 * solved, ORDER + 1);
    }
}
