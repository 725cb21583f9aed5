//! `cargo ifunc inspect`

mod prototype;
mod report;
mod table;

use std::io::Write;

use ifunc_abi::image::{Image, MAGIC};
use ifunc_build::{LibraryImage, read_library};

use crate::cli::InspectArgs;
use crate::error::Failure;
use report::Report;

pub(crate) use report::hex;

pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let file = &args.file;
    let images = images_of(file)?;
    let reports = images
        .iter()
        .map(|one| {
            let image = Image::parse(&one.image).map_err(|source| Failure::Image {
                file: file.clone(),
                source,
            })?;
            Ok(Report::new(one, &image))
        })
        .collect::<Result<Vec<_>, Failure>>()?;

    if args.json {
        let mut out = std::io::stdout().lock();
        match &reports[..] {
            [only] => serde_json::to_writer_pretty(&mut out, only),
            several => serde_json::to_writer_pretty(&mut out, several),
        }
        .map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        let mut out = anstream::stdout().lock();
        for (index, report) in reports.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            table::print(report, &mut out)?;
        }
    }
    Ok(())
}

/// The images of a library, or the one that the file is.
fn images_of(file: &std::path::Path) -> Result<Vec<LibraryImage>, Failure> {
    let bytes = std::fs::read(file).map_err(Failure::io("read", file))?;
    if !bytes.starts_with(&MAGIC) {
        return Ok(read_library(file)?.images);
    }
    let image = Image::parse(&bytes).map_err(|source| Failure::Image {
        file: file.into(),
        source,
    })?;
    let name = image.name().to_owned();
    Ok(vec![LibraryImage {
        name,
        image: bytes,
        about: String::new(),
        debug: Vec::new(),
    }])
}
