//! Hand-written remarks on figures: why a goal is missed, what was tried. A Markdown file with a heading `##
//! ID` per figure; the text before the first heading describes the file.

/// Remarks by figure.
pub(super) struct Remarks<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Remarks<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let remark = |section: &'a str| {
            let (id, remark) = section.split_once('\n').unwrap_or((section, ""));
            (id.trim(), remark.trim())
        };
        Self(text.split("\n## ").skip(1).map(remark).collect())
    }

    pub(super) fn about(&self, figure: &str) -> Option<&'a str> {
        let found = self.0.iter().find(|(id, _)| *id == figure);
        found.map(|(_, remark)| *remark)
    }

    /// The figures that have remarks.
    pub(super) fn figures(&self) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(|(id, _)| *id)
    }
}
