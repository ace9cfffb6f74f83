#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace prism::io {

// The number of insertions, deletions, substitutions and swaps of adjacent letters (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b);

// The known word with the most similar spelling; empty if more than half of its letters differ.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

// Splits a text at separators.
std::vector<std::string> split(std::string_view text, char separator);

std::string grouped(int64_t number);                           // 1,234,567
std::string counted(int64_t number, const std::string& noun);  // "1 file", "1,234 files"

// Returns the rows of a table as lines, with columns that line up, two blanks apart.
std::string aligned(const std::vector<std::vector<std::string>>& rows);

}  // namespace prism::io
