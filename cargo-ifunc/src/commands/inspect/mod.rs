//! `cargo ifunc inspect`

mod disasm;
mod flow;
mod prototype;
mod report;
mod size;
mod symbols;
mod table;
#[cfg(test)]
mod tests;

use std::io::Write;

use ifunc_abi::image::{Image, MAGIC};
use ifunc_build::{LibraryError, LibraryImage, embedded_images, read_library};

use crate::cli::InspectArgs;
use crate::error::Failure;
use report::Report;
use serde::Serialize;
use size::Size;

pub(crate) use report::hex;

pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let file = &args.file;
    let images = images_of(file)?;
    let mut parsed = Vec::new();
    for Found { image: one, .. } in &images {
        let image = Image::parse(&one.image).map_err(|source| Failure::Image {
            file: file.clone(),
            source,
        })?;
        parsed.push((one, image));
    }
    if args.disasm {
        let mut out = anstream::stdout().lock();
        for (index, (one, image)) in parsed.iter().enumerate() {
            separate(index, &mut out)?;
            disasm::print(image, &one.name, &one.debug, args.bytes, &mut out)?;
        }
        return Ok(());
    }
    if args.size {
        let sizes: Vec<Size> = parsed
            .iter()
            .map(|(one, image)| Size::new(&one.name, image, one.image.len(), &one.debug))
            .collect();
        return show(args.json, &sizes, |size, out| size.print(out));
    }
    let mut reports: Vec<Report> = parsed
        .iter()
        .zip(&images)
        .map(|((one, image), found)| Report {
            offset: found.offset,
            ..Report::new(one, image)
        })
        .collect();
    report::number_slices(&mut reports);
    if !args.json && reports.iter().any(|report| report.slice.is_some()) {
        let mut out = anstream::stdout().lock();
        table::print_slices(&reports, &mut out)?;
        writeln!(out)?;
    }
    show(args.json, &reports, |report, out| table::print(report, out))
}

/// Prints one item per image: JSON (an array if there are several), or text.
fn show<T: Serialize>(
    json: bool,
    all: &[T],
    print: impl Fn(&T, &mut dyn Write) -> std::io::Result<()>,
) -> Result<(), Failure> {
    if json {
        let mut out = std::io::stdout().lock();
        match all {
            [only] => serde_json::to_writer_pretty(&mut out, only),
            several => serde_json::to_writer_pretty(&mut out, several),
        }
        .map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(());
    }
    let mut out = anstream::stdout().lock();
    for (index, one) in all.iter().enumerate() {
        separate(index, &mut out)?;
        print(one, &mut out)?;
    }
    Ok(())
}

fn separate(index: usize, out: &mut impl Write) -> std::io::Result<()> {
    match index {
        0 => Ok(()),
        _ => writeln!(out),
    }
}

/// An image of a file.
pub(crate) struct Found {
    pub(crate) image: LibraryImage,
    /// Its offset in a program that embeds it.
    pub(crate) offset: Option<usize>,
}

/// The images of a library, the image that the file itself is, or those that a program embeds.
pub(crate) fn images_of(file: &std::path::Path) -> Result<Vec<Found>, Failure> {
    let error = match read_library(file) {
        Ok(library) => {
            let images = library.images.into_iter();
            return Ok(images.map(|image| Found { image, offset: None }).collect());
        }
        Err(error) => error,
    };
    let bytes = std::fs::read(file).map_err(Failure::io("read", file))?;
    let embedded = embedded_images(&bytes);
    if embedded.is_empty() {
        if bytes.starts_with(&MAGIC) {
            // Says why it is none.
            Image::parse(&bytes).map_err(|source| Failure::Image {
                file: file.into(),
                source,
            })?;
        }
        return Err(match error {
            LibraryError::NoImage { .. } => Failure::Message(format!(
                "`{}` holds no image\nhelp: `inspect` takes a library that `cargo ifunc build` made (target/ifunc/release/NAME.so), an \
                 image, or a program that embeds images",
                file.display()
            )),
            error => error.into(),
        });
    }
    let is_whole = |at: usize, image: &LibraryImage| at == 0 && image.image.len() == bytes.len();
    let found = embedded.into_iter().map(|found| Found {
        offset: Some(found.offset).filter(|at| !is_whole(*at, &found.image)),
        image: found.image,
    });
    Ok(found.collect())
}
