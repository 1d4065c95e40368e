//! RFFT2D and COMPLEX_ABS: the spectrum of planes of floats, and the magnitude of complex numbers.

use nnhal_hal::ops::tflite::spectra::lengths;
use nnhal_hal::{OperationType, tflite};

use crate::kernel::{Kernel, KernelContext, KernelError, Pace};

pub(super) const KERNELS: &[(OperationType, Kernel)] =
    &[(tflite::RFFT2D, rfft2d), (tflite::COMPLEX_ABS, magnitudes)];

fn magnitudes(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (numbers, _) = context.inputs.data::<f32>(0)?.as_chunks::<2>();
    for (to, [real, imaginary]) in context.outputs.data::<f32>(0)?.iter_mut().zip(numbers) {
        *to = real.hypot(*imaginary);
    }
    Ok(())
}

/// Rows, then what is kept of their columns, in 64-bit floats. What the input lacks is 0.
fn rfft2d(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let [height, width] = lengths(context.inputs.rules())?.map(|length| length as usize);
    let input = context.inputs.tensor(0)?;
    let rank = input.shape.rank();
    let [rows, columns] = [rank - 2, rank - 1].map(|axis| input.shape.dim(axis) as usize);
    let values = input.data::<f32>()?;
    // Without images the lengths are bounded by nothing.
    if context.outputs.data::<f32>(0)?.is_empty() {
        return Ok(());
    }
    let kept = width / 2 + 1;
    let longest = height.max(width);
    let mut pace = context.pace();
    let [cosines, sines, re, im, grid_re, grid_im] = context.scratch.carve::<f64, 6>([
        longest / 2,
        longest / 2,
        longest,
        longest,
        height * kept,
        height * kept,
    ])?;
    for (at, (cosine, sine)) in cosines.iter_mut().zip(sines.iter_mut()).enumerate() {
        pace.work(1)?;
        let angle = -2.0 * std::f64::consts::PI * at as f64 / longest as f64;
        (*sine, *cosine) = angle.sin_cos();
    }
    let roots = Roots { cosines, sines };
    let output = context.outputs.data::<f32>(0)?;
    for (batch, plane) in output.chunks_exact_mut(height * kept * 2).enumerate() {
        let size = rows * columns;
        let image = values.get(batch * size..(batch + 1) * size).unwrap_or_default();
        for row in 0..height {
            let (re, im) = (&mut re[..width], &mut im[..width]);
            re.fill(0.0);
            im.fill(0.0);
            if row < rows {
                for (to, value) in re.iter_mut().zip(&image[row * columns..(row + 1) * columns]) {
                    *to = f64::from(*value);
                }
            }
            transform(re, im, roots, &mut pace)?;
            grid_re[row * kept..][..kept].copy_from_slice(&re[..kept]);
            grid_im[row * kept..][..kept].copy_from_slice(&im[..kept]);
        }
        for column in 0..kept {
            let (re, im) = (&mut re[..height], &mut im[..height]);
            for row in 0..height {
                (re[row], im[row]) = (grid_re[row * kept + column], grid_im[row * kept + column]);
            }
            transform(re, im, roots, &mut pace)?;
            for row in 0..height {
                let at = 2 * (row * kept + column);
                (plane[at], plane[at + 1]) = (re[row] as f32, im[row] as f32);
            }
        }
    }
    Ok(())
}

/// Complex numbers of length 1: half of a turn in equal steps.
#[derive(Clone, Copy)]
struct Roots<'a> {
    cosines: &'a [f64],
    sines: &'a [f64],
}

/// The Fourier transform of as many complex numbers as a power of 2, at most two for each root.
fn transform(
    re: &mut [f64],
    im: &mut [f64],
    roots: Roots<'_>,
    pace: &mut Pace<'_>,
) -> Result<(), KernelError> {
    let count = re.len();
    pace.work(count)?;
    for at in 1..count {
        let mirrored = at.reverse_bits() >> (usize::BITS - count.ilog2());
        if at < mirrored {
            re.swap(at, mirrored);
            im.swap(at, mirrored);
        }
    }
    let mut half = 1;
    while half < count {
        let step = roots.cosines.len() / half;
        for start in (0..count).step_by(2 * half) {
            for place in 0..half {
                pace.work(1)?;
                let (cosine, sine) = (roots.cosines[place * step], roots.sines[place * step]);
                let (even, odd) = (start + place, start + place + half);
                let real = re[odd] * cosine - im[odd] * sine;
                let imaginary = re[odd] * sine + im[odd] * cosine;
                (re[odd], im[odd]) = (re[even] - real, im[even] - imaginary);
                (re[even], im[even]) = (re[even] + real, im[even] + imaginary);
            }
        }
        half *= 2;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::{OneOperation, ends_by_the_deadline};

    fn plane(dims: &[u32], lengths: &[i32]) -> (OneOperation, Vec<f32>) {
        let count = dims.iter().product::<u32>();
        let values: Vec<f32> = (0..count).map(|at| (at * at % 7) as f32 - 2.5).collect();
        let operation = OneOperation::new(tflite::RFFT2D)
            .tensor(T::TENSOR_FLOAT32, dims, &values)
            .tensor(T::TENSOR_INT32, &[lengths.len() as u32], lengths)
            .output(T::TENSOR_FLOAT32, &[]);
        (operation, values)
    }

    /// By the definition, for one plane.
    fn slow(values: &[f32], columns: usize, height: usize, width: usize) -> Vec<f64> {
        let rows = values.len() / columns;
        let mut spectrum = Vec::new();
        for (u, v) in (0..height).flat_map(|u| (0..=width / 2).map(move |v| (u, v))) {
            let (mut re, mut im) = (0.0, 0.0);
            for (y, x) in (0..rows.min(height)).flat_map(|y| (0..columns.min(width)).map(move |x| (y, x))) {
                let turns = (u * y) as f64 / height as f64 + (v * x) as f64 / width as f64;
                let (sine, cosine) = (-std::f64::consts::TAU * turns).sin_cos();
                let value = f64::from(values[y * columns + x]);
                (re, im) = (re + value * cosine, im + value * sine);
            }
            spectrum.extend([re, im]);
        }
        spectrum
    }

    #[test]
    fn spectra_are_those_of_the_definition() {
        for (rows, columns, height, width) in [
            (4, 8, 4, 8),
            (3, 5, 4, 8),
            (5, 9, 4, 8),
            (2, 3, 1, 1),
            (3, 3, 8, 2),
            (0, 3, 2, 2),
            (1, 16, 1, 16),
        ] {
            let (operation, values) = plane(&[1, rows, columns], &[height as i32, width as i32]);
            let (dims, found) = operation.run_one::<f32>().unwrap();
            assert_eq!(dims, [1, height as u32, width as u32 / 2 + 1, 2]);
            for (found, expected) in found.iter().zip(slow(&values, columns as usize, height, width)) {
                assert!(
                    (f64::from(*found) - expected).abs() < 1e-5,
                    "{found}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn each_plane_has_its_own_spectrum() {
        let found = OneOperation::new(tflite::RFFT2D)
            .tensor(T::TENSOR_FLOAT32, &[2, 1, 2], &[1_f32, 2.0, 5.0, 3.0])
            .tensor(T::TENSOR_INT32, &[2], &[1, 2])
            .output(T::TENSOR_FLOAT32, &[])
            .run_one::<f32>();
        let expected = vec![3.0, 0.0, -1.0, 0.0, 8.0, 0.0, 2.0, 0.0];
        assert_eq!(found.unwrap(), (vec![2, 1, 2, 2], expected));
    }

    #[test]
    fn magnitudes_neither_overflow_nor_vanish() {
        let found = OneOperation::new(tflite::COMPLEX_ABS)
            .tensor(T::TENSOR_FLOAT32, &[2, 2], &[3_f32, -4.0, 3e30, 4e30])
            .output(T::TENSOR_FLOAT32, &[])
            .run_one::<f32>();
        assert_eq!(found.unwrap(), (vec![2], vec![5.0, 5e30]));
        let odd = OneOperation::new(tflite::COMPLEX_ABS)
            .tensor(T::TENSOR_FLOAT32, &[3], &[0_f32; 3])
            .output(T::TENSOR_FLOAT32, &[])
            .run_one::<f32>();
        assert!(odd.unwrap_err().contains("must be 2"));
    }

    #[test]
    fn lengths_other_than_powers_of_2_give_an_error() {
        for lengths in [&[3, 4][..], &[4, 0], &[-4, 4], &[4], &[4, 4, 4], &[i32::MIN, 1]] {
            let error = plane(&[2, 2], lengths).0.run().unwrap_err();
            assert!(error.contains("two powers of 2"), "{error}");
        }
        assert!(plane(&[1, 1], &[1 << 30, 1 << 30]).0.run().is_err());
    }

    #[test]
    fn nothing_is_computed_where_there_is_no_plane() {
        let (dims, found) = plane(&[0, 1, 1], &[1 << 15, 1 << 15]).0.run_one::<f32>().unwrap();
        assert_eq!((dims[0], found), (0, vec![]));
    }

    #[test]
    fn long_transforms_end_by_the_deadline() {
        ends_by_the_deadline(plane(&[1, 1], &[2048, 2048]).0);
        ends_by_the_deadline(plane(&[1, 1], &[1, 1 << 22]).0);
    }
}
