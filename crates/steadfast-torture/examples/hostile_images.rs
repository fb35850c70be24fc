//! Writes hostile images to a directory, for a reader that is not in this process: the kernel
//! module. Arguments: directory, count, first seed.

use std::path::Path;

use steadfast_torture::hostile::{Choices, IMAGES, base_image, mutate, rot};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, count, first] = arguments.as_slice() else {
        return Err("usage: hostile_images DIRECTORY COUNT SEED".into());
    };
    let (count, first): (u64, u64) = (count.parse()?, first.parse()?);
    for seed in first..first + count {
        let bytes = Choices::bytes_of(seed, 64);
        let mut choices = Choices::new(&bytes);
        let mut image = base_image(choices.below(IMAGES)).to_vec();
        // One in four has wrong checksums, too.
        if seed % 4 == 0 {
            rot(&mut image, &mut choices);
        } else {
            mutate(&mut image, &mut choices);
        }
        std::fs::write(Path::new(directory).join(format!("hostile-{seed}")), image)?;
    }
    Ok(())
}
