"""Checks ONNX files with onnx.checker, shape inference included."""
import sys

import onnx

for path in sys.argv[1:]:
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 8 and model.opset_import[0].version == 17, path
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == 'N', path
