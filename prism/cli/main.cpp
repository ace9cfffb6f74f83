#include "prism/cli/command.h"

int main(int argc, char** argv) { return prism::cli::run(argc, argv); }
