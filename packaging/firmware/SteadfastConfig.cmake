# find_package(Steadfast): the file system as imported targets for the processor of this build.
#
#   Steadfast::Steadfast  the profile that STEADFAST_PROFILE names: small (default) or full
#   Steadfast::small      without snapshots, shared blocks and changes of extended attributes
#   Steadfast::full       everything
#
# STEADFAST_TARGET names the archive, as a directory of lib. Without it the options -mcpu, -march
# and -mfloat-abi in CMAKE_C_FLAGS choose it, and CMAKE_SYSTEM_PROCESSOR where they name no
# processor.

get_filename_component(steadfast_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
file(GLOB steadfast_archives LIST_DIRECTORIES true RELATIVE "${steadfast_root}/lib"
    "${steadfast_root}/lib/*-none-*")

if(NOT STEADFAST_TARGET)
    string(TOLOWER "${CMAKE_C_FLAGS}" steadfast_words)
    if(NOT steadfast_words MATCHES "-mcpu=|-march=")
        string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR} ${CMAKE_C_FLAGS}" steadfast_words)
    endif()
    # An FPU may be used without being passed in its registers; only the calls must agree.
    if(steadfast_words MATCHES "-mfloat-abi=hard|eabihf")
        set(steadfast_abi eabihf)
    else()
        set(steadfast_abi eabi)
    endif()
    if(steadfast_words MATCHES "cortex-m(33|35p|52|55|85)|armv8(\\.1)?-m\\.main|thumbv8m\\.main")
        set(steadfast_target thumbv8m.main-none-${steadfast_abi})
    elseif(steadfast_words MATCHES "cortex-m(4|7)|armv7e-m|thumbv7em")
        set(steadfast_target thumbv7em-none-${steadfast_abi})
    elseif(steadfast_words MATCHES "cortex-m(0|1)|armv6s?-m|thumbv6m")
        set(steadfast_target thumbv6m-none-${steadfast_abi})
    elseif(steadfast_words MATCHES "rv32|riscv32")
        # Extensions beside imac change nothing, but floats in registers and other bases do.
        if(steadfast_words MATCHES "-mabi=ilp32[efd]|rv32e")
            set(steadfast_target "")
        else()
            set(steadfast_target riscv32imac-unknown-none-elf)
        endif()
    else()
        set(steadfast_target "")
    endif()
else()
    set(steadfast_target "${STEADFAST_TARGET}")
endif()

if(NOT STEADFAST_PROFILE)
    set(steadfast_profile small)
else()
    set(steadfast_profile "${STEADFAST_PROFILE}")
endif()

if(NOT steadfast_target IN_LIST steadfast_archives)
    set(Steadfast_FOUND FALSE)
    string(CONCAT Steadfast_NOT_FOUND_MESSAGE
        "no archive for CMAKE_SYSTEM_PROCESSOR '${CMAKE_SYSTEM_PROCESSOR}' with the flags "
        "'${CMAKE_C_FLAGS}': set STEADFAST_TARGET to one of: ${steadfast_archives}")
elseif(NOT steadfast_profile MATCHES "^(small|full)$")
    set(Steadfast_FOUND FALSE)
    set(Steadfast_NOT_FOUND_MESSAGE
        "STEADFAST_PROFILE is '${steadfast_profile}': set it to small or full")
else()
    foreach(steadfast_name small full)
        if(NOT TARGET Steadfast::${steadfast_name})
            add_library(Steadfast::${steadfast_name} STATIC IMPORTED)
            set_target_properties(Steadfast::${steadfast_name} PROPERTIES
                IMPORTED_LOCATION
                    "${steadfast_root}/lib/${steadfast_target}/${steadfast_name}/libsteadfast.a"
                INTERFACE_INCLUDE_DIRECTORIES "${steadfast_root}/include")
        endif()
    endforeach()
    if(NOT TARGET Steadfast::Steadfast)
        add_library(Steadfast::Steadfast INTERFACE IMPORTED)
        set_target_properties(Steadfast::Steadfast PROPERTIES
            INTERFACE_LINK_LIBRARIES Steadfast::${steadfast_profile})
    endif()
endif()
