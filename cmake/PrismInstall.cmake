# Installs the library, its headers and the package `Prism` with its target prism::prism.

include(CMakePackageConfigHelpers)
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/Prism")

foreach(layer IN LISTS PRISM_LIBRARY_LAYERS)
  set_target_properties(prism_${layer} PROPERTIES EXPORT_NAME ${layer})
  target_include_directories(prism_${layer} INTERFACE "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  install(TARGETS prism_${layer} EXPORT PrismTargets)
  install(DIRECTORY prism/${layer} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/prism" FILES_MATCHING PATTERN "*.h")
endforeach()
install(TARGETS prism EXPORT PrismTargets)
install(FILES prism/prism.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/prism")

configure_package_config_file(cmake/PrismConfig.cmake.in PrismConfig.cmake INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file(PrismConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT PrismTargets NAMESPACE prism:: DESTINATION "${package_folder}")
install(
  FILES "${PROJECT_BINARY_DIR}/PrismConfig.cmake" "${PROJECT_BINARY_DIR}/PrismConfigVersion.cmake" cmake/FindTorch.cmake
  DESTINATION "${package_folder}")
