"""Which functions take ragged tensors, and what they do then.

Functions of dense tensors do not look for other ones before they run, which would cost every call.
Where one refuses its arguments and something ragged is among them, its *ragged form* is called
instead: a function with the same parameters. The faces (core/face.py) give functions that have one
wrapped.
"""

import functools
import importlib
from typing import Any, Callable

# Functions of the elements of their first argument.
_UNARY = """
    abs acos acosh as_string asin asinh atan atanh bitcast bitwise.invert cast clip_by_value
    cos cosh debugging.check_numerics exp floor identity image.adjust_brightness
    image.adjust_gamma image.convert_image_dtype image.random_brightness
    image.stateless_random_brightness io.decode_base64 io.decode_compressed io.decode_raw
    io.encode_base64 math.angle math.bessel_i0 math.bessel_i0e math.bessel_i1 math.bessel_i1e
    math.ceil math.conj math.digamma math.erf math.erfc math.erfcinv math.erfinv math.expm1
    math.imag math.is_finite math.is_inf math.is_nan math.lgamma math.log math.log1p
    math.log_sigmoid math.ndtri math.real math.reciprocal math.reciprocal_no_nan math.rint
    math.rsqrt math.softplus math.special.bessel_j0 math.special.bessel_j1
    math.special.bessel_k0 math.special.bessel_k0e math.special.bessel_k1
    math.special.bessel_k1e math.special.bessel_y0 math.special.bessel_y1 math.special.dawsn
    math.special.expint math.special.fresnel_cos math.special.fresnel_sin math.special.spence
    logical_not negative nn.dropout nn.elu nn.experimental.stateless_dropout nn.gelu
    nn.leaky_relu nn.relu nn.relu6 nn.selu nn.silu nn.softplus nn.softsign nn.swish ones_like
    regex_replace round saturate_cast sigmoid sign sin sinh sqrt square stop_gradient
    string_to_hash_bucket string_to_hash_bucket_fast string_to_hash_bucket_strong
    string_to_number strings.length strings.lower strings.regex_full_match
    strings.regex_replace strings.strip strings.substr strings.to_hash_bucket
    strings.to_hash_bucket_fast strings.to_hash_bucket_strong strings.to_number
    strings.unicode_script strings.upper substr tan tanh to_bfloat16 to_complex128 to_complex64
    to_double to_float to_int32 to_int64 zeros_like
"""

# Functions of pairs of elements of their first two arguments, which are broadcast together.
_BINARY = """
    add bitwise.bitwise_and bitwise.bitwise_or bitwise.bitwise_xor bitwise.left_shift
    bitwise.right_shift complex div divide equal floor_div floordiv greater greater_equal less
    less_equal logical_and logical_or logical_xor math.atan2 math.divide math.divide_no_nan
    math.floordiv math.floormod math.igamma math.igammac math.logical_xor math.multiply_no_nan
    math.nextafter math.polygamma math.squared_difference math.xdivy math.xlog1py math.xlogy
    math.zeta maximum minimum multiply nn.sigmoid_cross_entropy_with_logits not_equal pow
    realdiv scalar_mul subtract truediv truncatediv truncatemod
"""

# Functions that look at such pairs, and fail or not.
_ASSERTIONS = """
    debugging.assert_equal debugging.assert_greater debugging.assert_greater_equal
    debugging.assert_less debugging.assert_less_equal debugging.assert_near
    debugging.assert_none_equal
"""

# Functions with a form of their own, by modules of ops/ragged: "name", or "name=form" where the
# form is called otherwise. Where the faces have other parameters under a name, both are listed.
_OWN = {
    "arrange": "concat expand_dims reverse split squeeze stack tile",
    "dynamic_shape": "broadcast_dynamic_shape broadcast_to fill ones reshape zeros",
    "gathering": "batch_gather dynamic_partition",
    "joining": "strings.join=string_join",
    "numeric": "add_n cumsum matmul nn.softmax=softmax one_hot rank",
    "reduce": """
        math.reduce_std=reduce_std math.reduce_variance=reduce_variance
        math.unsorted_segment_max=unsorted_segment_max
        math.unsorted_segment_mean=unsorted_segment_mean
        math.unsorted_segment_min=unsorted_segment_min
        math.unsorted_segment_prod=unsorted_segment_prod
        math.unsorted_segment_sqrt_n=unsorted_segment_sqrt_n
        math.unsorted_segment_sum=unsorted_segment_sum reduce_all reduce_any reduce_max
        reduce_mean reduce_min reduce_prod reduce_sum
    """,
}
_OWN_V1 = {
    "dynamic_shape": "shape",
    "gathering": "gather gather_nd where where_v2",
    "joining": "reduce_join",
    "numeric": "size",
}
_OWN_V2 = {
    "dynamic_shape": "shape=shape_v2",
    "gathering": "gather=gather_v2 gather_nd=gather_nd_v2 where=where_v2",
    "joining": "strings.reduce_join=reduce_join_v2",
    "numeric": "size=size_v2",
}


def forms_of(face: str, names: dict[str, str]) -> dict[str, tuple[str, str]]:
    """{function: (module, form)} for the public names of a face, "v1" or "v2", and the functions
    that they stand for."""
    found = {}
    kinds = (("unary", _UNARY), ("binary", _BINARY), ("assertion", _ASSERTIONS))
    for kind, listed in kinds:
        for name in listed.split():
            if name in names:
                found[names[name]] = ("elementwise", kind)
    for table in (_OWN, _OWN_V1 if face == "v1" else _OWN_V2):
        for module, entries in table.items():
            for entry in entries.split():
                name, _, form = entry.partition("=")
                if name in names:
                    found[names[name]] = (module, form or name)
    return found


def _has_ragged(values: Any) -> bool:
    for value in values:
        if hasattr(value, "_has_ragged_form") or (
            isinstance(value, (list, tuple)) and _has_ragged(value)
        ):
            return True
    return False


def with_ragged_form(function: Callable[..., Any], module: str, form: str) -> Callable[..., Any]:
    """A function that calls the ragged form of another where that one refuses its arguments, and
    something ragged is among them. It has the other's parameters, and passes them on one by one: an
    argument list would have to be made and taken apart again in every call."""

    def fall_back(*args: Any, **kwargs: Any) -> Any:
        if not (_has_ragged(args) or _has_ragged(kwargs.values())):
            raise  # what the function has raised, in whose handler this runs
        made = getattr(importlib.import_module(f"millrace.ops.ragged.{module}"), form)
        return made(function, *args) if module == "elementwise" else made(**kwargs)

    import inspect  # late: few names need it

    from millrace.core.arguments import parameters_of  # late: as above

    parameters = parameters_of(function)
    names = [p.name for p in parameters]
    values = ", ".join(names)
    named = ", ".join(f"{name}={name}" for name in names)
    body = _WRAPPER.format(
        parameters=", ".join(names), values=values,
        given=values if module == "elementwise" else named,
    )  # fmt: skip
    space = {"_function": function, "_fall_back": fall_back, "__name__": __name__}
    exec(compile(body, __file__, "exec"), space)
    call = space["call"]
    call.__defaults__ = tuple(p.default for p in parameters if p.default is not p.empty)
    functools.update_wrapper(call, function)
    call.__signature__ = inspect.Signature(parameters)
    call._dense_form = function
    return call


def dense_form(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of dense tensors that a public function calls first; itself where it is one."""
    return getattr(function, "_dense_form", function)


_WRAPPER = """
def call({parameters}):
    try:
        return _function({values})
    except (TypeError, ValueError):
        return _fall_back({given})
"""
