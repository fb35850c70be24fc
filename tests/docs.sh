#!/usr/bin/env bash
# The pages (*.md): every relative link names a file, and a heading of it after `#`. Lines have at
# most 100 columns outside tables, code, link targets, and what scripts write between marks. Each
# decision is in the index. Scripts, C, Make files and the files of packages have at most 100
# columns, too; a tab goes to the next multiple of 8.
set -euo pipefail
cd "$(dirname "$0")/.."

find . \( -name target -o -name .git -o -path ./mnt \) -prune -o -name '*.md' -print0 \
    | sort -z | xargs -0 perl -CSD -e '
use strict;
use warnings;
use utf8;
use File::Basename qw(dirname);

my ($failures, $links) = (0, 0);
sub failed { print STDERR "docs: @_\n"; $failures++ }

# The lines of a page, each with whether it is text: no code block, nothing between marks.
sub lines {
    my ($page) = @_;
    my ($code, $generated, @lines) = (0, 0);
    open my $file, "<:encoding(UTF-8)", $page or die "$page: $!\n";
    while (my $line = <$file>) {
        chomp $line;
        $generated = 0 if $line eq "<!-- end -->";
        my $fence = $line =~ /^\s*```/;
        $code = !$code if $fence;
        push @lines, [$line, !$code && !$fence && !$generated];
        $generated = 1 if $line eq "<!-- measured -->";
    }
    return @lines;
}

# The names that links to headings of a page use.
my %anchors;
sub anchors {
    my ($page) = @_;
    return $anchors{$page} if $anchors{$page};
    my %found;
    for (lines($page)) {
        my ($line, $text) = @$_;
        next unless $text && $line =~ /^#+\s+(.*?)\s*$/;
        my $name = lc $1;
        $name =~ s/\[([^\]]*)\]\([^)]*\)/$1/g;
        $name =~ s/[^\w\- ]//g;
        $name =~ tr/ /-/;
        $name .= "-" . $found{$name}++ if $found{$name};
        $found{$name} = 1;
    }
    return $anchors{$page} = \%found;
}

for my $page (@ARGV) {
    my $number = 0;
    for (lines($page)) {
        my ($line, $text) = @$_;
        $number++;
        next unless $text;
        my $words = $line =~ s/`[^`]*`//gr;
        while ($words =~ /\]\(([^)\s]+)\)/g) {
            my $link = $1;
            next if $link =~ /^[a-z]+:/;
            $links++;
            my ($path, $heading) = split /#/, $link, 2;
            my $target = $path eq "" ? $page : dirname($page) . "/" . $path;
            if (!-e $target) { failed("$page:$number: no such file: $link") }
            elsif (defined $heading && $target =~ /\.md$/ && !anchors($target)->{$heading}) {
                failed("$page:$number: no such heading: $link");
            }
        }
        my $shown = $line =~ s/\]\([^)]*\)/]/gr;
        failed("$page:$number: " . length($shown) . " columns: at most 100")
            if length($shown) > 100 && $line !~ /^\s*\|/;
    }
}
die "docs: no links found\n" unless $links;
exit($failures ? 1 : 0);
'

# A test writes steadfast.h from the declarations in Rust, one to a line.
find . \( -name target -o -name .git -o -path ./mnt -o -name __pycache__ \) -prune \
    -o -path ./crates/steadfast-capi/include/steadfast.h -o -name '*.json' -o -type f \
    \( -name '*.sh' -o -name '*.py' -o -name '*.[chS]' -o -name '*.yml' \
    -o -name Makefile -o -name Kbuild -o -path './packaging/*' -o -path './.ci/*' \) -print0 \
    | sort -z | xargs -0 perl -CSD -ne '
    chomp;
    1 while s/\t/" " x (8 - $-[0] % 8)/e;
    if (length > 100) {
        print STDERR "docs: $ARGV:$.: " . length . " columns: at most 100\n";
        $failures++;
    }
    close ARGV if eof;
    END { exit($failures ? 1 : 0) }
'
for decision in docs/decisions/[0-9]*.md; do
    grep -q "($(basename "$decision"))" docs/decisions/README.md \
        || { echo "docs: not in docs/decisions/README.md: $decision" >&2; exit 1; }
done
echo "docs: ok"
