"""The list of networks that people train, and how each becomes an ONNX file by PyTorch's exporter.

Of torchvision the classifiers and the segmentation networks with ten classes, at the smallest image that says the same as a
large one; sensors.py, sequences.py and layers.py have what people write themselves.
"""
import collections
import contextlib
import io
import warnings

import torch
import torch.nn as nn
import torchvision

import layers
import pixels
import sensors
import sequences as seq
import signals

OPSET = 17
IMAGE, SENSOR, LAYER, DENSE, CELLS, ATTENTION, TEXT = (
    'image', 'sound or sensor', 'single layer', 'output for each pixel', 'recurrence', 'attention', 'text')  # fmt: skip

# Of one example: its shape; whole numbers below `high` where that is set.
Input = collections.namedtuple('Input', 'shape high', defaults=(None,))
# `outputs`: how many it has; called y, y1, y2 in the file.
Network = collections.namedtuple('Network', 'name kind make inputs outputs', defaults=(1,))


def vision(name, **options):
    return lambda: getattr(torchvision.models, name)(weights=None, num_classes=10, **options)


def segmentation(name):
    def make():
        inner = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, num_classes=3)
        return seq.OutOnly(inner)

    return make


def torchvision_networks():
    names = ['alexnet', 'vgg11', 'vgg16', 'vgg19', 'vgg11_bn', 'vgg16_bn', 'googlenet', 'resnet18', 'resnet34', 'resnet50',
             'resnet101', 'resnext50_32x4d', 'wide_resnet50_2', 'densenet121', 'squeezenet1_0', 'mobilenet_v2', 'mnasnet0_5',
             'mnasnet1_0', 'regnet_x_400mf', 'mobilenet_v3_small', 'mobilenet_v3_large', 'efficientnet_b0', 'efficientnet_v2_s',
             'regnet_y_400mf', 'inception_v3', 'shufflenet_v2_x0_5', 'shufflenet_v2_x1_0', 'convnext_tiny']  # fmt: skip
    options = {'googlenet': {'aux_logits': False, 'init_weights': False}, 'inception_v3': {'aux_logits': False, 'init_weights': False},
               'alexnet': {'dropout': 0.5}}  # fmt: skip
    sizes = {'inception_v3': 139, **{name: 224 for name in names if name.startswith(('vgg', 'alexnet'))}}
    made = [Network(name, IMAGE, vision(name, **options.get(name, {})), [Input((3, sizes.get(name, 64), sizes.get(name, 64)))])
            for name in names]  # fmt: skip
    made.append(Network('vit_b_16', ATTENTION, vision('vit_b_16', image_size=64), [Input((3, 64, 64))]))
    for name in ('swin_t', 'maxvit_t'):
        made.append(Network(name, ATTENTION, vision(name), [Input((3, 224, 224))]))
    for name in ('fcn_resnet50', 'deeplabv3_mobilenet_v3_large', 'lraspp_mobilenet_v3_large'):
        made.append(Network(name, DENSE, segmentation(name), [Input((3, 64, 64))]))
    return made


def sensor_networks():
    features, window, image = [Input((32,))], [Input((6, 128))], [Input((3, 32, 32))]
    made = [
        ('ds_cnn', sensors.DsCnn, [Input((1, 49, 10))]),
        ('dense_autoencoder', sensors.Autoencoder, [Input((640,))]),
        ('mlp_layer_norm_relu', lambda: sensors.mlp(nn.ReLU()), features),
        ('mlp_layer_norm_tanh', lambda: sensors.mlp(nn.Tanh()), features),
        ('mlp_layer_norm_gelu', lambda: sensors.mlp(nn.GELU()), features),
        ('mlp_silu', lambda: sensors.mlp(nn.SiLU()), features),
        ('mlp_selu', lambda: sensors.mlp(nn.SELU(), False), features),
        ('gated_mlp', sensors.Gated, features),
        ('siamese', sensors.Siamese, features),
        ('shared_linear', sensors.Shared, features),
        ('wake_word', sensors.WakeWord, [Input((16, 96))]),
        ('conv1d', lambda: sensors.conv1d_net(norm=False), window),
        ('conv1d_batch_norm', sensors.conv1d_net, window),
        ('har_fcn', sensors.HarFcn, window),
        ('raw_sound_m5', sensors.M5, [Input((1, 8000))]),
        ('ecg_resnet', sensors.Ecg, [Input((12, 500))]),
        ('tcn', sensors.Tcn, window),
        ('tcn_padded', lambda: sensors.Tcn(by_pad=True), window),
        ('eegnet', sensors.Eeg, [Input((1, 22, 256))]),
        ('spectrogram_cnn', sensors.SoundImage, [Input((64, 64))]),
    ]
    made = [Network(name, SENSOR, make, inputs) for name, make, inputs in made]
    images = [
        ('lenet5', sensors.Lenet, [Input((1, 28, 28))]),
        ('squeeze_excite', lambda: sensors.SqueezeExcite(torch.sigmoid, torch.relu), image),
        ('squeeze_excite_hard', lambda: sensors.SqueezeExcite(nn.Hardsigmoid(), nn.Hardswish()), image),
        ('squeeze_excite_tanh', lambda: sensors.SqueezeExcite(torch.tanh, torch.relu), image),
        ('squeeze_excite_dense', sensors.SqueezeDense, image),
        ('normalised_inside', sensors.Normalised, image),
        ('channels_last', sensors.ChannelsLast, [Input((32, 32, 3))]),
        ('layer_scale', sensors.Scaled, image),
    ]
    return made + [Network(name, IMAGE, make, inputs) for name, make, inputs in images]


def sequence_networks():
    ids, one, image = [Input((16,), seq.VOCABULARY)], Input((), seq.VOCABULARY), [Input((3, 32, 32))]
    window = [Input((32, 6))]
    made = [
        ('text_cnn', TEXT, seq.TextCnn, ids),
        ('matrix_factorisation', TEXT, seq.Factors, [one, one]),
        ('ncf', TEXT, seq.Ncf, [one, one]),
        ('lstm_text', CELLS, lambda: seq.Recurrent(nn.LSTM, True), ids),
        ('gru_text', CELLS, lambda: seq.Recurrent(nn.GRU, True), ids),
        ('rnn_text', CELLS, lambda: seq.Recurrent(nn.RNN, True), ids),
        ('lstm_sensor', CELLS, lambda: seq.Recurrent(nn.LSTM, False), window),
        ('gru_sensor', CELLS, lambda: seq.Recurrent(nn.GRU, False), window),
        ('lstm_both_ways', CELLS, lambda: seq.Recurrent(nn.LSTM, False, 2, True), window),
        ('conv_gru', CELLS, seq.ConvRecurrent, [Input((6, 64))]),
        ('bert', ATTENTION, seq.Bert, [ids[0], Input((16,), 2), Input((16,), 2)]),
        ('bert_joint', ATTENTION, lambda: seq.Bert(True), [ids[0], Input((16,), 2), Input((16,), 2)]),
        ('gpt_without_mask', ATTENTION, lambda: seq.Gpt(is_masked=False), ids),
        ('gpt', ATTENTION, seq.Gpt, ids),
        ('gpt_tied', ATTENTION, lambda: seq.Gpt(is_tied=True), ids),
        ('gpt_all_tokens', ATTENTION, lambda: seq.Gpt(is_all=True), ids),
        ('transformer_encoder', ATTENTION, seq.Encoder, ids),
        ('transformer_encoder_sequence_first', ATTENTION, lambda: seq.Encoder(False), ids),
        ('transformer_encoder_padded', ATTENTION, lambda: seq.Encoder(is_padded=True), ids),
        ('transformer', ATTENTION, seq.Translator, [ids[0], Input((12,), seq.VOCABULARY)]),
        ('cross_attention', ATTENTION, seq.Crossed, [window[0], Input((20, 4))]),
        ('multihead_attention', ATTENTION, seq.Heads, window),
        ('small_vit', ATTENTION, seq.SmallVit, image),
        ('image_autoencoder', DENSE, seq.ImageAutoencoder, [Input((1, 28, 28))]),
        ('unet_transposed', DENSE, lambda: seq.Unet('transposed'), image),
        ('unet_nearest', DENSE, lambda: seq.Unet('nearest'), image),
        ('unet_bilinear', DENSE, lambda: seq.Unet('bilinear'), image),
        ('small_segmentation', DENSE, seq.Segment, image),
    ]
    return [Network(*row) for row in made]


def paper_networks():
    """Of pixels.py and signals.py."""
    image, wide, ids = [Input((3, 32, 32))], [Input((3, 64, 64))], [Input((16,), signals.IDS)]
    window, sound, one = [Input((6, 64))], [Input((20, 60))], Input((), signals.IDS)
    made = [
        ('convnext_v1', IMAGE, pixels.ConvNext, image),
        ('convnext_v2', IMAGE, lambda: pixels.ConvNext(True), image),
        ('mlp_mixer', IMAGE, pixels.Mixer, image),
        ('gmlp', IMAGE, pixels.Gmlp, image),
        ('mobilevit', ATTENTION, pixels.MobileVit, image),
        ('cvt', ATTENTION, pixels.Cvt, image),
        ('efficientformer', ATTENTION, pixels.EfficientFormer, image),
        ('ghostnet', IMAGE, pixels.Ghost, image),
        ('repvgg', IMAGE, pixels.RepVgg, image),
        ('cbam', IMAGE, pixels.Cbam, image),
        ('eca', IMAGE, pixels.Eca, image),
        ('coordinate_attention', IMAGE, pixels.CoordinateAttention, image),
        ('selective_kernels', IMAGE, pixels.Selective, image),
        ('axial_attention', ATTENTION, pixels.Axial, image),
        ('non_local', ATTENTION, pixels.NonLocal, image),
        ('global_context', ATTENTION, pixels.Involved, image),
        ('unet_plus', DENSE, pixels.UnetPlus, image),
        ('feature_pyramid', DENSE, pixels.Pyramid, wide, 2),
        ('segformer', DENSE, pixels.SegFormer, wide),
        ('two_tasks', IMAGE, pixels.TwoTasks, image, 3),
        ('film', IMAGE, pixels.Conditioned, [*image, Input((8,))]),
        ('tcn_dilated', SENSOR, signals.DilatedTcn, window),
        ('wavenet', SENSOR, signals.WaveNet, window),
        ('conformer', ATTENTION, signals.Conformer, [Input((50, 20))]),
        ('patchtst', ATTENTION, signals.PatchTst, [Input((96, 3))]),
        ('patchtst_without_norm', ATTENTION, lambda: signals.PatchTst(is_normed=False), [Input((96, 3))]),
        ('dlinear', SENSOR, signals.DLinear, [Input((96, 3))]),
        ('inception_time', SENSOR, signals.InceptionTime, window),
        ('x_vectors', SENSOR, signals.Vectors, sound),
        ('attentive_pooling', SENSOR, signals.AttentivePooling, sound),
        ('deepfm', TEXT, signals.DeepFm, [Input((5,), signals.IDS)]),
        ('wide_and_deep', TEXT, signals.WideDeep, [Input((7,)), Input((3,), 10)]),
        ('neumf', TEXT, signals.NeuMf, [one, one]),
        ('cross_network', TEXT, signals.CrossNet, [Input((5,), signals.IDS)]),
        ('ft_transformer', ATTENTION, signals.TabTransformer, [Input((7,))]),
        ('distilbert', ATTENTION, signals.DistilBert, [*ids, Input((16,), 2), Input((16,), 2)]),
        ('t5_encoder', ATTENTION, signals.T5, ids),
        ('llama', ATTENTION, signals.Llama, ids),
        ('alibi', ATTENTION, signals.Alibi, ids),
        ('two_towers', ATTENTION, signals.TwoTowers, [*image, Input((12,), signals.IDS)]),
        ('experts', SENSOR, signals.Experts, [Input((32,))], 2),
        ('fourier_features', SENSOR, signals.Fourier, [Input((2,))]),
        ('autoencoder_kl', SENSOR, signals.AutoencoderVae, [Input((32,))], 2),
        ('late_interaction', TEXT, signals.BiasedRelations, [Input((8,), signals.IDS), Input((20,), signals.IDS)]),
    ]
    return [Network(*row) for row in made]


def all_networks():
    single = [Network('layer_' + name, LAYER, make, [Input((3, 17, 17))]) for name, make in layers.LAYERS.items()]
    return torchvision_networks() + sensor_networks() + sequence_networks() + paper_networks() + single


def draw(network, n, generator):
    """n examples for each input: standard normal, or whole numbers."""
    return [torch.randn((n, *one.shape), generator=generator) if one.high is None
            else torch.randint(0, one.high, (n, *one.shape), generator=generator) for one in network.inputs]  # fmt: skip


def output_names(network):
    return ['y', *['y%d' % i for i in range(1, network.outputs)]]


def export(model, network, path):
    """'train', or 'eval' where PyTorch cannot export for training; None and the exporter's complaint where neither works."""
    examples = tuple(draw(network, 2, torch.Generator().manual_seed(1)))
    names = ['x%d' % i if len(examples) > 1 else 'x' for i in range(len(examples))]
    outputs = output_names(network)
    complaint = ''
    for mode in ('train', 'eval'):
        is_train = mode == 'train'
        model.train(is_train)
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter('ignore')
                torch.onnx.export(model, examples, path, opset_version=OPSET, do_constant_folding=not is_train,
                                  training=torch.onnx.TrainingMode.TRAINING if is_train else torch.onnx.TrainingMode.EVAL,
                                  input_names=names, output_names=outputs, dynamic_axes={name: {0: 'N'} for name in [*names, *outputs]})
            return mode, ''
        except Exception as error:  # the exporter raises whatever the network met
            complaint = complaint or str(error).strip().split('\n')[0]
    return None, complaint
